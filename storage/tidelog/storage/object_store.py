"""The interface of every object store: eight calls, and errors by what the caller does next.

Concepts
--------
- A **key** is a relative path of ``/``-separated parts, ASCII, at most 1,024 bytes. No part is empty, ``.`` or ``..``.
  To fit a local directory as well, a part has at most 255 bytes, and no key is the folder of another key.
- An object is written whole, and read whole or by range. Readers see it whole or not at all.
- `create` is the only consensus on Tidelog's data path: of any number of racing creates of a key one wins, and the
  others raise `Conflict`.
- A **version** is an opaque tag of a key's content; `put(if_version=...)` replaces exactly that content. S3's ETags
  follow from the bytes, so the same bytes written again have the same version. A caller that must detect A, B, A puts
  something unique into the bytes, as each version of a shard's manifest has the id of its writer.
- After a write is answered, every later get, head and list shows it (on S3 since December 2020).

Errors, of every call
---------------------
`NotFound` (get, head), `Conflict` (create of an existing key; put with another version), `Contended` (the store did
nothing: send again), `Unavailable` (outcome unknown: the write may have happened or may still happen), `Denied`,
`Invalid` (a key that breaks the rules above).

Implementations: `stores.memory`, `stores.local`, `stores.s3`. Wrappers, one concern each: `stores.retrying`,
`stores.hedging`, `stores.counting`, `stores.rationing`. All of them pass `tests/storage/stores/conformance.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.storage.errors import Invalid

Body = bytes | bytearray | memoryview
"""The body of a write. Pass a `pyarrow.Buffer` as ``memoryview(buffer)``: that makes no copy."""

KEY_BYTES_MAX = 1_024
LIST_PAGE_MAX = 1_000
DELETE_BATCH_MAX = 1_000
"""The keys that one request removes. S3 takes no more."""


@dataclass(frozen=True)
class ByteRange:
    """``length`` bytes from ``start``. A negative ``start`` counts from the end, and the range goes to the end.

    A range beyond the end is cut at the end; if it starts there, it gives no bytes.
    """

    start: int
    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None and (self.length < 0 or self.start < 0):
            raise Invalid(
                f"{self} is not a range: neither a length nor the start of a length may be negative", field="range"
            )

    def within(self, size: int) -> tuple[int, int]:
        """The first byte, and the byte after the last one, in an object of `size` bytes."""
        start = min(self.start, size) if self.start >= 0 else max(size + self.start, 0)
        stop = size if self.length is None else min(start + self.length, size)
        return start, stop


@dataclass(frozen=True)
class ObjectInfo:
    """An object's metadata. `size` is in bytes, `modified_ms` since 1970 UTC by the store's clock."""

    key: str
    size: int
    version: str
    modified_ms: int


@dataclass(frozen=True)
class StoredObject:
    """The bytes that were read (all, or a range), with the info of the whole object."""

    info: ObjectInfo
    data: bytes


class ObjectReads(Protocol):
    """What programs need that only read objects whose keys they know."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        """Read an object, or a range of it, in one request. Raises `NotFound`."""
        ...


class ObjectStore(ObjectReads, Protocol):
    """A bucket, or the part of one under a prefix. All calls may run at the same time."""

    @property
    def url(self) -> str:
        """The store's address, as `--store` takes it: ``file:///abs/path``, ``s3://bucket/prefix``, ``memory:``."""
        ...

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        """Write or replace `key`, and return the new version. With `if_version`, raise `Conflict` unless that is the
        current version of an existing key."""
        ...

    async def create(self, key: str, data: Body) -> str:
        """Write `key` if it is absent, and return its version; else raise `Conflict` and change nothing. Atomic among
        all racing writers."""
        ...

    async def delete(self, key: str) -> None:
        """Remove `key`. It is no error if `key` is absent."""
        ...

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Remove `keys`, absent ones too, in one request for each `DELETE_BATCH_MAX` of them.

        The keys of a request go in no particular order. If some cannot be removed, the others are, and then the error
        of one of them is raised; later requests are not sent. Call it again with the same keys to finish."""
        ...

    async def list(self, prefix: str, *, start_after: str = "", limit: int = LIST_PAGE_MAX) -> Sequence[ObjectInfo]:
        """One page in one request: the keys that start with `prefix` (a plain string) and sort after `start_after`,
        ascending by their bytes. Fewer than `limit` (1 to 1,000) keys mean that no more follow."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """The object's info. Raises `NotFound`."""
        ...

    async def aclose(self) -> None:
        """Release connections and threads. A second call does nothing."""
        ...


def checked_key(key: str) -> str:
    """`key`, if it follows the rules in the module's docstring. Raises `Invalid`."""
    if not key or len(key) > KEY_BYTES_MAX or not key.isascii() or not key.isprintable() or "\\" in key:
        raise Invalid(f"{key!r} is not a key: 1 to {KEY_BYTES_MAX} printable ASCII characters", field="key")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise Invalid(f"{key!r} is not a key: a part of it is empty, '.' or '..'", field="key")
    return key


def is_key_prefix(prefix: str) -> bool:
    """Whether a key can start with `prefix`. If none can, there is nothing to list."""
    folders = prefix.split("/")[:-1]
    spelled = prefix.isascii() and prefix.isprintable() and "\\" not in prefix and len(prefix) <= KEY_BYTES_MAX
    return spelled and not any(part in ("", ".", "..") for part in folders)


def checked_limit(limit: int) -> int:
    """`limit`, if a page can have that many keys. Raises `Invalid`."""
    if not 1 <= limit <= LIST_PAGE_MAX:
        raise Invalid(f"a page has 1 to {LIST_PAGE_MAX:,} keys, not {limit}", field="limit")
    return limit


def flat_view(data: Body) -> memoryview:
    """The bytes of `data` as a view without a copy. Each item is one byte, so `len` is the number of bytes."""
    return memoryview(data).cast("B")


def delete_batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """`keys` in parts of one request each."""
    return (keys[start : start + DELETE_BATCH_MAX] for start in range(0, len(keys), DELETE_BATCH_MAX))


async def list_all(store: ObjectStore, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
    """Every object under `prefix`, page by page."""
    while True:
        page = await store.list(prefix, start_after=start_after)
        for info in page:
            yield info
        if len(page) < LIST_PAGE_MAX:
            return
        start_after = page[-1].key
