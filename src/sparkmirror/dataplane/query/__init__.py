"""Records through a query of Spark SQL."""
