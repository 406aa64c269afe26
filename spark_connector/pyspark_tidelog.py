"""Spark finds the format ``tidelog`` by itself through this module, without `register`: it imports modules whose names
begin with ``pyspark_`` and registers their `DefaultSource`. `tidelog.spark_connector.register` adds filter pushdown."""

from tidelog.spark_connector.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
