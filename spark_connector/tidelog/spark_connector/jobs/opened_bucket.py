"""Opens a bucket for programs that write to it, or walk it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.retrying import RetryingObjectStore


@asynccontextmanager
async def opened_bucket(url: str) -> AsyncIterator[ObjectStore]:
    """The bucket at `url`, closed at the end. Raises `Invalid`."""
    runtime = Runtime()
    store = RetryingObjectStore(open_store(url, runtime=runtime), runtime)
    try:
        yield store
    finally:
        await store.aclose()
