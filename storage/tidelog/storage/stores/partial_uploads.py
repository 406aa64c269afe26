"""Uploads that were begun and not finished: S3's multipart uploads, a local directory's temporary files.

No listing of objects shows them, and they cost as much as objects. A store that can have them has a property
`partial_uploads`. It is not part of `ObjectStore`, since only the sweep uses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.wrapping import WrappingObjectStore


@dataclass(frozen=True)
class PartialUpload:
    """An unfinished upload of `key`, or a temporary file of that name. `touched_ms` is the time of its last write, by
    the store's clock."""

    key: str
    upload_id: str
    size_bytes: int
    touched_ms: int


class PartialUploads(Protocol):
    """The unfinished uploads of one store. Raises `Unavailable`, `Denied`."""

    def pending(self) -> AsyncIterator[PartialUpload]:
        """All of them, under way or abandoned."""
        ...

    async def abort(self, upload: PartialUpload) -> None:
        """Remove `upload`. It is no error if it is finished or gone."""
        ...


@runtime_checkable
class HasPartialUploads(Protocol):
    """A store that can have unfinished uploads."""

    @property
    def partial_uploads(self) -> PartialUploads: ...


def partial_uploads_of(store: ObjectStore) -> PartialUploads | None:
    """Those of `store`, or of the store that it wraps; None if it cannot have any, like a store in memory."""
    while isinstance(store, WrappingObjectStore):
        store = store.inner
    return store.partial_uploads if isinstance(store, HasPartialUploads) else None
