"""The usual AWS settings, for the two readers of an ``s3://`` store that are not Tidelog's own.

The broker takes endpoint, region and credentials from the AWS variables (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID`` ...). pyarrow, which the data source reads with, and Hadoop's ``s3a``, which Spark's own Parquet
reader uses, know the credentials' variables too, but not all of the others; this module hands those on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyarrow.fs import S3FileSystem

from tidelog.storage.stores.s3_settings import is_amazon

HADOOP_AWS_PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"
DEFAULT_REGION = "us-east-1"


def s3_options(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings for a `SparkSession` whose `read` shall reach an ``s3://`` store, from the AWS variables:

        SparkSession.builder.config(map={"spark.jars.packages": HADOOP_AWS_PACKAGE, **s3_options()})

    Credentials are not among them: ``s3a`` finds the variables (and a role of the machine) by itself, and so they do
    not end in a configuration that others can read. Path style is used at an endpoint that is not Amazon's.
    """
    environ = os.environ if environ is None else environ
    endpoint = _endpoint(environ)
    options = {"spark.hadoop.fs.s3a.endpoint.region": _region(environ)}
    if endpoint:
        options["spark.hadoop.fs.s3a.endpoint"] = endpoint
        options["spark.hadoop.fs.s3a.path.style.access"] = str(not is_amazon(endpoint)).lower()
    return options


def s3_file_system(environ: Mapping[str, str] | None = None) -> S3FileSystem:
    """pyarrow's file system under the same settings."""
    environ = os.environ if environ is None else environ
    endpoint = _endpoint(environ)
    return S3FileSystem(
        endpoint_override=endpoint,
        region=_region(environ),
        force_virtual_addressing=endpoint is not None and is_amazon(endpoint),
    )


def _endpoint(environ: Mapping[str, str]) -> str | None:
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None


def _region(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
