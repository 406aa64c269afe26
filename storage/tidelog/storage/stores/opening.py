"""From the text of `--store` to a store.

    memory:                 forgotten with the process
    file:PATH               a local directory, made if it is not there: file:./tidelog-data, file:///var/lib/tidelog
    s3://BUCKET/PREFIX      S3 or what speaks it; endpoint, region and credentials by the usual AWS settings

What comes back is the bare store. Retrying, hedging and counting are the wiring's choice, in that order from outside:
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
    """The store that `url` names, with `s3` if it is on S3; `Invalid` with the known forms if it names none. Call
    `aclose` when done."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "memory" and not rest:
        return MemoryObjectStore(runtime.clock)
    if colon and scheme == "file" and rest:
        return LocalObjectStore(_local_root(url, rest), runtime)
    if colon and scheme == "s3":
        return _open_s3(url, rest, s3)
    raise Invalid(f"{url!r} is not a store: use one of {', '.join(KNOWN_FORMS)}", field="store")


def _local_root(url: str, rest: str) -> Path:
    """``file:PATH`` or ``file:///PATH``; a host between the slashes has no meaning here."""
    if rest.startswith("//"):
        rest = rest.removeprefix("//").removeprefix("localhost")
        if not rest.startswith("/"):
            raise Invalid(f"{url!r} names a host: use file:PATH or file:///PATH", field="store")
    return Path(rest).expanduser()


def _open_s3(url: str, rest: str, settings: S3Settings | None) -> ObjectStore:
    # Imported here, because boto is ~50 MB of memory that a broker on a local directory must not pay.
    from tidelog.storage.stores.s3 import S3ObjectStore

    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not bucket:
        raise Invalid(f"{url!r} names no bucket: use s3://BUCKET or s3://BUCKET/PREFIX", field="store")
    return S3ObjectStore(bucket, prefix, settings)
