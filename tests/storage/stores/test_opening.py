"""Opening a store from the text of `--store`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.s3 import S3ObjectStore


async def test_memory() -> None:
    store = open_store("memory:", runtime=Runtime())
    assert isinstance(store, MemoryObjectStore)
    assert store.url == "memory:"


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}"])
async def test_an_absolute_path(tmp_path: Path, form: str) -> None:
    store = open_store(form.format(tmp_path / "data"), runtime=Runtime())
    assert isinstance(store, LocalObjectStore)
    assert store.url == (tmp_path / "data").as_uri()
    await store.aclose()


async def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("file:./data", runtime=Runtime())
    assert store.url == (tmp_path / "data").as_uri()
    await store.aclose()


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"])
async def test_a_bucket(url: str) -> None:
    store = open_store(url, runtime=Runtime())
    assert isinstance(store, S3ObjectStore)
    assert store.url == url.rstrip("/")
    await store.aclose()


@pytest.mark.parametrize(
    "url", ["", "data", "memory:x", "file:", "file://host/path", "s3:", "s3://", "s3:///p", "s3:bucket", "gs://bucket"]
)
def test_an_invalid_store_is_refused_with_the_known_forms(url: str) -> None:
    with pytest.raises(Invalid, match=r"file:PATH|s3://BUCKET"):
        open_store(url, runtime=Runtime())


def test_a_broker_on_a_local_directory_does_not_load_the_s3_library(tmp_path: Path) -> None:
    program = f"""
import sys
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store
open_store("file:{tmp_path}", runtime=Runtime())
print(*{{"boto3", "botocore", "aioboto3", "aiobotocore", "aiohttp"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
