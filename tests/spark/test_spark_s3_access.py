"""The AWS variables reach Spark's s3a and pyarrow; credentials stay out of Spark's configuration."""

from __future__ import annotations

from pyarrow.fs import S3FileSystem

from tidelog.spark_connector.sessions.s3_access import s3_options
from tidelog.storage.stores.arrow_files import s3_file_system

STREAM = {"spark.hadoop.fs.s3a.input.stream.type": "classic"}


def test_an_endpoint_comes_with_path_style() -> None:
    options = s3_options({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-central-1"})

    assert options == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        **STREAM,
    }


def test_the_endpoint_of_s3_goes_before_that_of_all_services() -> None:
    options = s3_options({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"})

    assert options["spark.hadoop.fs.s3a.endpoint"] == "http://b"


def test_path_style_is_left_off_at_an_endpoint_of_amazon() -> None:
    options = s3_options({"AWS_ENDPOINT_URL": "https://s3.eu-west-1.amazonaws.com"})

    assert options["spark.hadoop.fs.s3a.path.style.access"] == "false"


def test_amazon_itself_needs_no_endpoint() -> None:
    options = s3_options({"AWS_DEFAULT_REGION": "us-west-2"})

    assert options == {"spark.hadoop.fs.s3a.endpoint.region": "us-west-2", **STREAM}


def test_credentials_are_left_to_s3a() -> None:
    options = s3_options({"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "hush"})

    assert "hush" not in str(options)
    assert "somebody" not in str(options)


def test_pyarrows_file_system_takes_the_same_settings() -> None:
    files = s3_file_system({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-central-1"})

    assert isinstance(files, S3FileSystem)
    assert files.region == "eu-central-1"
