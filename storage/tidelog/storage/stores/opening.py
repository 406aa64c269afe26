"""Opens the store that `--store` names.

    memory:                 lost when the process ends
    file:PATH               a local directory, created if missing: file:./tidelog-data, file:///var/lib/tidelog
    s3://BUCKET/PREFIX      S3 or a compatible server; endpoint, region and credentials from the usual AWS settings

The result is the bare store. The caller adds wrappers, in this order:
``RetryingObjectStore(HedgingObjectStore(CountingObjectStore(open_store(...))))`` counts every try, as the bill does.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.s3_settings import S3Settings

KNOWN_FORMS = ("memory:", "file:PATH", "s3://BUCKET/PREFIX")


def open_store(url: str, *, runtime: Runtime, s3: S3Settings | None = None) -> ObjectStore:
    """The store at `url`, with the settings `s3` if it is on S3. Raises `Invalid` for an unknown form. Call `aclose`
    when done."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "memory" and not rest:
        return MemoryObjectStore(runtime.clock)
    if colon and scheme == "file" and rest:
        return LocalObjectStore(_local_root(url, rest), runtime)
    if colon and scheme == "s3":
        return _open_s3(url, rest, s3)
    raise Invalid(f"{url!r} is not a store: use one of {', '.join(KNOWN_FORMS)}", field="store")


def _local_root(url: str, rest: str) -> Path:
    """``file:PATH`` or ``file:///PATH``, without a host between the slashes."""
    if rest.startswith("//"):
        rest = rest.removeprefix("//").removeprefix("localhost")
        if not rest.startswith("/"):
            raise Invalid(f"{url!r} names a host: use file:PATH or file:///PATH", field="store")
    return Path(rest).expanduser()


def _open_s3(url: str, rest: str, settings: S3Settings | None) -> ObjectStore:
    # Imported here: boto takes about 50 MB of memory, which a broker on a local directory does not need.
    from tidelog.storage.stores.s3 import S3ObjectStore

    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not bucket:
        raise Invalid(f"{url!r} names no bucket: use s3://BUCKET or s3://BUCKET/PREFIX", field="store")
    return S3ObjectStore(bucket, prefix, settings)
