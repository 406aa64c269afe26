"""The footers of segments that were read of late, bounded by bytes. Segments never change, so nothing goes stale."""

from __future__ import annotations

from collections import OrderedDict

from tidelog.storage.parquet.parquet_format import Footer


class FooterCache:
    """The least recently used go first. A footer counts as many bytes as it has in its object."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._footers)

    def get(self, key: str) -> Footer | None:
        footer = self._footers.get(key)
        if footer is not None:
            self._footers.move_to_end(key)
        return footer

    def put(self, key: str, footer: Footer) -> None:
        self.drop(key)
        self._footers[key] = footer
        self.held_bytes += _size_bytes(footer)
        while self.held_bytes > self._bytes_max:
            _, oldest = self._footers.popitem(last=False)
            self.held_bytes -= _size_bytes(oldest)

    def drop(self, key: str) -> None:
        if (footer := self._footers.pop(key, None)) is not None:
            self.held_bytes -= _size_bytes(footer)


def _size_bytes(footer: Footer) -> int:
    return footer.object_bytes - footer.start
