"""Where Spark 4 looks for the data source `sparkmirror`: it imports every module whose name begins with `pyspark_`."""

from sparkmirror.tables.source import TableSource as DefaultSource

__all__ = ["DefaultSource"]
