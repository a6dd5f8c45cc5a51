"""The data path: what a Spark task does with its partitions."""
