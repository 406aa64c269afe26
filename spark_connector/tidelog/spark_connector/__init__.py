"""Tidelog for Spark: one read over the cold segments and the hot tail, each record exactly once.

    from tidelog.spark_connector import read, register, use_java

    use_java()                                  # before the first SparkSession, if Java may be missing
    read(spark, subscribe="web")                # fast: cold by Spark's Parquet reader, hot through the broker
    replan_once(lambda: read(spark, subscribe="web").count())       # also if a segment is deleted meanwhile
    register(spark)
    spark.read.format("tidelog").option("subscribe", "web").load()

Options have the names and the meaning of Spark's Kafka source: see `tidelog.spark_connector.options`.
"""

from tidelog.spark_connector.java_runtime import JavaNotFound, JavaRuntime, use_java
from tidelog.spark_connector.native_read import read
from tidelog.spark_connector.s3_access import HADOOP_AWS_PACKAGE, s3_options
from tidelog.spark_connector.second_plan import replan_once
from tidelog.spark_connector.slices import DataLoss
from tidelog.spark_connector.source import TidelogDataSource, register

__all__ = [
    "HADOOP_AWS_PACKAGE",
    "DataLoss",
    "JavaNotFound",
    "JavaRuntime",
    "TidelogDataSource",
    "read",
    "register",
    "replan_once",
    "s3_options",
    "use_java",
]
