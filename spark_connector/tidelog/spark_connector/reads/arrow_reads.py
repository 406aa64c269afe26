"""Reads objects of a store by pyarrow's file systems, which executors have; they lack the S3 library of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.storage.errors import Denied, NotFound, Unavailable
from tidelog.storage.object_store import ByteRange, ObjectInfo, StoredObject
from tidelog.storage.stores.arrow_files import arrow_files


@contextmanager
def store_errors(url: str, key: str) -> Iterator[None]:
    """Turns pyarrow's errors into `NotFound` (the object is gone), `Denied`, `Unavailable`."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{url} has no object {key}") from error
    except PermissionError as error:
        raise Denied(f"{url} does not let {key} be read: {error}") from error
    except OSError as error:
        # pyarrow reports S3's refusals only in the text of the error.
        if "NO_SUCH_KEY" in str(error):
            raise NotFound(f"{url} has no object {key} any more") from error
        kind = Denied if "ACCESS_DENIED" in str(error) else Unavailable
        raise kind(f"{url} did not give {key}: {error}") from error


class ArrowReads:
    """See `tidelog.storage.object_store.ObjectReads`. A call blocks its thread, because a task does one thing at a
    time. Infos have neither version nor time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = arrow_files(url)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> StoredObject:
        with store_errors(self._url, key), self._files.open_input_file(f"{self._root}/{key}") as file:
            size = file.size()
            start, stop = (byte_range or ByteRange(0)).within(size)
            file.seek(start)
            return StoredObject(ObjectInfo(key, size, "", 0), file.read(stop - start))
