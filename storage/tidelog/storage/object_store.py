"""The seam to the bucket: seven calls, and errors by what the caller does next.

Concepts
--------
- A **key** is a relative path of ``/``-separated parts, ASCII, at most 1,024 bytes; no part is empty, ``.`` or ``..``.
  To fit a local directory too, a part has at most 255 bytes and no key is the folder of another.
- An object is written whole and read whole or by range; it is visible whole or not at all.
- `create` is the only consensus Tidelog's data path uses: of any number of racing creates of a key one wins, and the
  others raise `Conflict`.
- A **version** is an opaque tag of a key's content; `put(if_version=...)` replaces exactly that content. S3's ETags
  follow from the bytes, so a version comes again when the same bytes are written again: a caller that must notice that
  (A, B, A) puts something into the bytes that never comes again, as the floor does with its rising number.
- After a write was answered, every later get, head and list sees it (S3 has been so since December 2020).

Errors, of every call
---------------------
`NotFound` (get, head), `Conflict` (create of an existing key; put with another version), `Contended` (the store did
nothing, send again), `Unavailable` (nothing known: the write may have happened or may yet), `Denied`, `Invalid` (a key
that breaks the rules above).

Implementations: `stores.memory`, `stores.local`, `stores.s3`. Wrappers, one concern each: `stores.retrying`,
`stores.counting`, `stores.rationing`. `tests/storage/stores/conformance.py` is the suite that each of them passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.storage.errors import Invalid

Body = bytes | bytearray | memoryview
"""What a write takes; a `pyarrow.Buffer` goes in as ``memoryview(buffer)`` without a copy."""

KEY_BYTES_MAX = 1_024
LIST_PAGE_MAX = 1_000


@dataclass(frozen=True)
class ByteRange:
    """``length`` bytes from ``start``; a negative ``start`` counts from the end and takes all that follows.

    A range that reaches beyond the end is cut there; one that starts at or beyond the end gives no bytes.
    """

    start: int
    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None and (self.length < 0 or self.start < 0):
            raise Invalid(
                f"{self} is not a range: a length is not negative, and has a start that is not", field="range"
            )

    def within(self, size: int) -> tuple[int, int]:
        """Where the range starts and stops in an object of `size` bytes."""
        start = min(self.start, size) if self.start >= 0 else max(size + self.start, 0)
        stop = size if self.length is None else min(start + self.length, size)
        return start, stop


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing or a head tells: `size` in bytes, `modified_ms` since 1970 UTC by the store's clock."""

    key: str
    size: int
    version: str
    modified_ms: int


@dataclass(frozen=True)
class StoredObject:
    """The bytes read (all, or the range asked for), with the whole object's info."""

    info: ObjectInfo
    data: bytes


class ObjectStore(Protocol):
    """A bucket, or a part of one under a prefix. All calls may run at the same time."""

    @property
    def url(self) -> str:
        """Where this is, as `--store` takes it and other readers can: ``file:///abs/path``, ``s3://bucket/prefix``,
        ``memory:``."""
        ...

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        """Read an object, or a range of it, in one request. Raises `NotFound`."""
        ...

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        """Write or replace `key`; with `if_version` only if that is its version now, else `Conflict`
        (also when the key is absent). Returns the new version."""
        ...

    async def create(self, key: str, data: Body) -> str:
        """Write `key` if it is absent, else raise `Conflict` and change nothing. Atomic among all racing writers.
        Returns the version."""
        ...

    async def delete(self, key: str) -> None:
        """Remove `key`; that it was absent is no error."""
        ...

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        """One page, one request: keys that start with `prefix` (a plain string prefix), beyond `start_after`,
        ascending by their bytes. Fewer than `limit` (1 to 1,000) means that no more follow."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """The object's info without its bytes. Raises `NotFound`."""
        ...

    async def aclose(self) -> None:
        """Release connections and threads. Calling it again does nothing."""
        ...


def checked_key(key: str) -> str:
    """`key` itself if it keeps the rules of the module's head, else `Invalid`."""
    if not key or len(key) > KEY_BYTES_MAX or not key.isascii() or not key.isprintable() or "\\" in key:
        raise Invalid(f"{key!r} is not a key: 1 to {KEY_BYTES_MAX} printable ASCII characters", field="key")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise Invalid(f"{key!r} is not a key: a part of it is empty, '.' or '..'", field="key")
    return key


def begins_a_key(prefix: str) -> bool:
    """Whether any key can start with `prefix`; where none can, there is nothing to list."""
    folders = prefix.split("/")[:-1]
    spelled = prefix.isascii() and prefix.isprintable() and "\\" not in prefix and len(prefix) <= KEY_BYTES_MAX
    return spelled and not any(part in ("", ".", "..") for part in folders)


def checked_limit(limit: int) -> int:
    """`limit` itself if a page can have that many keys, else `Invalid`."""
    if not 1 <= limit <= LIST_PAGE_MAX:
        raise Invalid(f"a page has 1 to {LIST_PAGE_MAX:,} keys, not {limit}", field="limit")
    return limit


def flat_view(data: Body) -> memoryview:
    """The bytes of `data` without a copy, one item a byte, so that `len` is their number."""
    return memoryview(data).cast("B")


async def list_all(store: ObjectStore, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
    """Every object under `prefix`, page by page."""
    while True:
        page = await store.list(prefix, start_after=start_after)
        for info in page:
            yield info
        if len(page) < LIST_PAGE_MAX:
            return
        start_after = page[-1].key
