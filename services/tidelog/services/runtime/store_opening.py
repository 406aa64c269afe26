"""The store that the settings name."""

from __future__ import annotations

from tidelog.services.runtime.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.s3_settings import S3Settings


def open_named_store(settings: Settings, runtime: Runtime) -> ObjectStore:
    """The bare store of `settings.store`, with their time limits. Raises `Invalid` if there is none of that name."""
    limits = S3Settings(
        connect_s_max=settings.store_connect_timeout_ms / 1000, request_s=settings.store_request_timeout_ms / 1000
    )
    return open_store(settings.store, runtime=runtime, s3=limits)
