"""Tidelog for Spark: reads and streams over the cold segments and the hot tail, each record exactly once.

    from tidelog.spark_connector import read, register, use_java

    use_java()                                  # before the first SparkSession, if Java may be missing
    read(spark, subscribe="web")                # fast: cold by Spark's Parquet reader, hot through the broker
    replan_once(lambda: read(spark, subscribe="web").count())       # also if a segment is deleted meanwhile
    register(spark)
    spark.read.format("tidelog").option("subscribe", "web").load()
    spark.readStream.format("tidelog").option("subscribe", "web").load()

Options have the names and the meaning of Spark's Kafka source: see `tidelog.spark_connector.options.read_options` and
`tidelog.spark_connector.options.stream_options`.
"""

from tidelog.spark_connector.queries.native_read import read
from tidelog.spark_connector.queries.second_plan import replan_once
from tidelog.spark_connector.reads.reach import check_executors
from tidelog.spark_connector.reads.slices import DataLoss
from tidelog.spark_connector.sessions.java_runtime import JavaNotFound, JavaRuntime, use_java
from tidelog.spark_connector.sessions.s3_access import HADOOP_AWS_PACKAGE, s3_options
from tidelog.spark_connector.source import TidelogDataSource, create_view, register
from tidelog.spark_connector.streams.stream_lag import kafka_metrics, stream_lag

__all__ = [
    "HADOOP_AWS_PACKAGE",
    "DataLoss",
    "JavaNotFound",
    "JavaRuntime",
    "TidelogDataSource",
    "check_executors",
    "create_view",
    "kafka_metrics",
    "read",
    "register",
    "replan_once",
    "s3_options",
    "stream_lag",
    "use_java",
]
