"""What a store holds that never became an object: parts of S3's multipart uploads, a directory's temporary files.

No listing of objects shows them, and they cost what objects cost. A store that has such things says so by a property
`partial_uploads`; wrappers are looked through by their `inner`. It is no part of `ObjectStore`, since only the sweep
asks for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidelog.storage.object_store import ObjectStore


@dataclass(frozen=True)
class PartialUpload:
    """An upload of `key` (or a file of that name) that was begun and not finished. `touched_ms`: when anything of it
    was last written, by the store's clock."""

    key: str
    upload_id: str
    size_bytes: int
    touched_ms: int


class PartialUploads(Protocol):
    """The unfinished uploads of one store. Raises `Unavailable`, `Denied`."""

    def pending(self) -> AsyncIterator[PartialUpload]:
        """All there are, under way or left behind."""
        ...

    async def abort(self, upload: PartialUpload) -> None:
        """Remove what there is of it; that it is finished or gone is no error."""
        ...


@runtime_checkable
class HasPartialUploads(Protocol):
    """A store that can be asked for them."""

    @property
    def partial_uploads(self) -> PartialUploads:
        """They, and the way to be rid of them."""
        ...


@runtime_checkable
class Wraps(Protocol):
    """A store around another."""

    @property
    def inner(self) -> ObjectStore:
        """The other."""
        ...


def partial_uploads_of(store: ObjectStore) -> PartialUploads | None:
    """Those of `store`, or of what it wraps; None if it has no such thing, as memory has not."""
    while not isinstance(store, HasPartialUploads):
        if not isinstance(store, Wraps):
            return None
        store = store.inner
    return store.partial_uploads
