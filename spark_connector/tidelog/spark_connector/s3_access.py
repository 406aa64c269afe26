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


def s3_options(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings for a `SparkSession` that reads an ``s3://`` store, from the AWS variables:

        SparkSession.builder.config(map={"spark.jars.packages": HADOOP_AWS_PACKAGE, **s3_options()})

    Credentials are not among the settings, which others may be able to read: ``s3a`` finds the variables or the
    machine's role itself. Path style is used at an endpoint that is not Amazon's.
    """
    environ = os.environ if environ is None else environ
    endpoint = s3_endpoint(environ)
    options = {"spark.hadoop.fs.s3a.endpoint.region": s3_region(environ)}
    if endpoint:
        options["spark.hadoop.fs.s3a.endpoint"] = endpoint
        options["spark.hadoop.fs.s3a.path.style.access"] = str(not is_amazon(endpoint)).lower()
    return options
