"""Passes the AWS variables to the two libraries with which Spark reads an ``s3://`` store.

The broker takes endpoint, region and credentials from the AWS variables (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID`` ...). pyarrow (for the data source) and Hadoop's ``s3a`` (for Spark's own Parquet reader) find the
credentials themselves, but not endpoint and region in every case. This module passes those on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tidelog.storage.stores.arrow_files import s3_endpoint, s3_region
from tidelog.storage.stores.s3_settings import is_amazon

HADOOP_AWS_PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"

_STREAM = {"spark.hadoop.fs.s3a.input.stream.type": "classic"}
"""The default of Hadoop 3.5, ``analytics``, reads a megabyte at the end of each file and objects below 8 MB as a whole,
however few rows a query wants. It also keeps an entry in memory for each object that was read (HADOOP-20058)."""


def s3_options(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings for a `SparkSession` that reads an ``s3://`` store, from the AWS variables:

        SparkSession.builder.config(map={"spark.jars.packages": HADOOP_AWS_PACKAGE, **s3_options()})

    Credentials are not among the settings, which others may be able to read: ``s3a`` finds the variables or the
    machine's role itself. Path style is used at an endpoint that is not Amazon's. A query that filters reads only what
    it needs of each object.
    """
    environ = os.environ if environ is None else environ
    endpoint = s3_endpoint(environ)
    options = {"spark.hadoop.fs.s3a.endpoint.region": s3_region(environ), **_STREAM}
    if endpoint:
        options["spark.hadoop.fs.s3a.endpoint"] = endpoint
        options["spark.hadoop.fs.s3a.path.style.access"] = str(not is_amazon(endpoint)).lower()
    return options
