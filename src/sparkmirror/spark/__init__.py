"""Spark: the session, the jobs that copy, and the Python workers they run in."""
