"""The bytes of row groups that were fetched last, as they are stored: compressed, and so far smaller than decoded.

Who looks a time up and then reads from there, or reads on in small steps, asks for the same row group again and again;
it is fetched once. Bounded by bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupName:
    """A row group of a segment. Segments never change, so nothing goes stale."""

    key: str
    index: int


class RowGroupCache:
    """The least recently used go first; one larger than `bytes_max` is not kept."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._groups: OrderedDict[GroupName, memoryview] = OrderedDict()
        self.held_bytes = 0

    def get(self, name: GroupName) -> memoryview | None:
        data = self._groups.get(name)
        if data is not None:
            self._groups.move_to_end(name)
        return data

    def put(self, name: GroupName, data: memoryview) -> None:
        if name in self._groups or len(data) > self._bytes_max:
            return
        self._groups[name] = data
        self.held_bytes += len(data)
        while self.held_bytes > self._bytes_max:
            _, oldest = self._groups.popitem(last=False)
            self.held_bytes -= len(oldest)
