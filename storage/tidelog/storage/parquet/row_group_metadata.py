"""The metadata of a row group in a footer, and its indexes, for a copy at another place of another object.

Statistics and everything else that does not change stays as the bytes that the source has: the metadata is cut out
around the numbers that a copy changes. An index of a column (its bloom filter, its column index with the bounds of
pages, its offset index with their positions) lies between the row groups and the footer. Source of the field numbers:
``parquet.thrift`` of the Apache Parquet format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tidelog.storage.parquet.thrift_compact import STRUCT, Encoded, Number, Places, StructReader, written_number

_FILE_OFFSET, _GROUP_OFFSET, _ORDINAL = (1, 2), (5,), (7,)
_DATA_PAGE, _DICTIONARY = (1, 3, 9), (1, 3, 11)
_BLOOM_FILTER, _OFFSET_INDEX, _COLUMN_INDEX = (1, 3, 14), (1, 4), (1, 6)
_OF_CHUNK: Places = {9: None, 11: None, 14: None, 15: None}
_CHANGED: Places = {1: {2: None, 3: _OF_CHUNK, 4: None, 5: None, 6: None, 7: None}, 5: None, 7: None}
"""What a copy changes of a row group: of each column the deprecated position of its metadata, the positions of its
first data page and of its dictionary, and positions and lengths of its indexes; its own position, and its number."""
_MOVED = (_DATA_PAGE, _DICTIONARY, _GROUP_OFFSET)
_INDEXES = (_BLOOM_FILTER, _OFFSET_INDEX, _COLUMN_INDEX)
"""Positions of indexes; the field after each is the length."""
_PAGE_OFFSETS: Places = {1: {1: None}}
_ORDINAL_MAX = 2**15 - 1


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """The bytes of an index. Its position is number `at` of the metadata, and its length the one after."""

    at: int
    data: bytes


@dataclass(frozen=True)
class _Cut:
    """A value in Thrift, cut out around some of its numbers."""

    pieces: Sequence[bytes]
    numbers: Sequence[Number]

    def joined(self, values: Sequence[int]) -> bytes:
        """The value with other numbers."""
        written = chain(map(written_number, values), [b""])
        return b"".join(chain.from_iterable(zip(self.pieces, written, strict=True)))


@dataclass(frozen=True)
class GroupMetadata:
    """The metadata of a row group."""

    cut: _Cut

    def indexes(self, body: memoryview, moved_by: int) -> Sequence[GroupIndex]:
        """The indexes of a row group that is moved. `body`: the whole object. Raises `Damaged`."""
        numbers, found = self.cut.numbers, []
        for at, number in enumerate(numbers):
            if number.path in _INDEXES:
                data = bytes(body[number.value : number.value + numbers[at + 1].value])
                found.append(GroupIndex(at, _moved(data, moved_by) if number.path == _OFFSET_INDEX else data))
        return found

    def moved(self, by: int, ordinal: int, indexes: Sequence[tuple[GroupIndex, int]]) -> Encoded:
        """The row group `by` bytes further on, as number `ordinal` of its file, with `indexes` at these positions."""
        fixed = {_FILE_OFFSET: 0, _ORDINAL: min(ordinal, _ORDINAL_MAX)}
        values = [
            number.value + by if number.path in _MOVED else fixed.get(number.path, number.value)
            for number in self.cut.numbers
        ]
        for index, position in indexes:
            values[index.at : index.at + 2] = position, len(index.data)
        return Encoded(self.cut.joined(values), STRUCT)


def read_group(reader: StructReader) -> GroupMetadata:
    """The next row group of a footer. Raises `Damaged`."""
    return GroupMetadata(_cut(reader, _CHANGED))


def _cut(reader: StructReader, places: Places) -> _Cut:
    start = reader.position
    numbers = list(reader.numbers(places))
    edges = [start, *chain.from_iterable((each.start, each.end) for each in numbers), reader.position]
    return _Cut([reader.between(*edges[at : at + 2]) for at in range(0, len(edges), 2)], numbers)


def _moved(offset_index: bytes, by: int) -> bytes:
    cut = _cut(StructReader(memoryview(offset_index)), _PAGE_OFFSETS)
    return cut.joined([number.value + by for number in cut.numbers])
