"""pyarrow's file systems over a store, for readers that open its Parquet objects directly.

The broker takes endpoint, region and credentials from the AWS variables (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID`` ...). pyarrow finds the credentials itself, but not endpoint and region in every case.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from tidelog.storage.errors import Invalid
from tidelog.storage.stores.s3_settings import is_amazon

DEFAULT_REGION = "us-east-1"


def arrow_files(url: str) -> tuple[FileSystem, str]:
    """The file system of the store at `url` (``file:///path`` or ``s3://bucket/prefix``), and the path of its root
    there. Raises `Invalid` for other schemes."""
    address = urlsplit(url)
    if address.scheme == "s3":
        return s3_file_system(), f"{address.netloc}/{address.path.strip('/')}".rstrip("/")
    if address.scheme == "file":
        return LocalFileSystem(), str(Path(unquote(address.path)))
    raise Invalid(f"{url!r} is not a store that can be read directly: use file:///PATH or s3://BUCKET/PREFIX")


def s3_file_system(environ: Mapping[str, str] | None = None) -> S3FileSystem:
    """S3 with the endpoint and region of the AWS variables. Path style is used at an endpoint that is not Amazon's."""
    environ = os.environ if environ is None else environ
    endpoint = s3_endpoint(environ)
    return S3FileSystem(
        endpoint_override=endpoint,
        region=s3_region(environ),
        force_virtual_addressing=endpoint is not None and is_amazon(endpoint),
    )


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The endpoint that the AWS variables name; None: Amazon's."""
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None


def s3_region(environ: Mapping[str, str]) -> str:
    """The region that the AWS variables name, or `DEFAULT_REGION`."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
