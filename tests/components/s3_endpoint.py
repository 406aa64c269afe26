"""An S3 server for tests, and buckets in it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from tidelog.storage.stores.s3_settings import S3Settings

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Endpoint:
    """The address of a server and its credentials."""

    url: str
    access_key_id: str
    secret_access_key: str

    def settings(self, **changes: object) -> S3Settings:
        """Settings for `S3ObjectStore`, independent of the environment."""
        known: dict[str, object] = {
            "endpoint_url": self.url,
            "region": REGION,
            "path_style": True,  # so that the store need not ask boto for the endpoint
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }
        return S3Settings(**{**known, **changes})  # type: ignore[arg-type]  # a test's fields are checked by its run

    def environment(self) -> Mapping[str, str]:
        """The usual AWS settings, for processes and for code that reads them."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str) -> S3Bucket:
        """Create a bucket with that name."""
        _client(self).create_bucket(Bucket=name)
        return S3Bucket(self, name)


@dataclass(frozen=True)
class S3Bucket:
    """A bucket only for one test."""

    endpoint: S3Endpoint
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"


@functools.cache
def _client(endpoint: S3Endpoint) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name=REGION,
        aws_access_key_id=endpoint.access_key_id,
        aws_secret_access_key=endpoint.secret_access_key,
        config=Config(s3={"addressing_style": "path"}),
    )
