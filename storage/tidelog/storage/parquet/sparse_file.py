"""A file of which only one part is in memory: an object that was read by range, as a Parquet reader sees it.

The reader knows where it wants to read. A read outside the part raises `OSError`, as for a truncated file.
"""

from __future__ import annotations

import io


class SparseFile:
    """Bytes ``[base, base + len(data))`` of a file of `size_bytes`. Reads are views, no copies."""

    def __init__(self, data: memoryview, base: int, size_bytes: int) -> None:
        self._data = data
        self._base = base
        self._size_bytes = size_bytes
        self._position = 0
        self.closed = False

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = origin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> memoryview:
        end = self._size_bytes if size < 0 else min(self._position + size, self._size_bytes)
        first, last = self._position - self._base, end - self._base
        if first < 0 or last > len(self._data):
            raise OSError(f"bytes {self._position} to {end} were not read")
        self._position = end
        return self._data[first:last]

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
