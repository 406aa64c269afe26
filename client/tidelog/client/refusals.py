"""A request that its broker refuses because of some of its records: which records those are, and what is left to send.

The broker takes nothing of a request that it refuses, and its problem names one record to blame where it knows one
(`record`). That record is left out and the rest is sent again. Where no record is named, the request is halved until a
record stands alone. After `REFUSALS_MAX` refusals, each part that is refused is given up as a whole, so the requests
that one bad batch can cause are bounded.

Everything here is pure; `delivery` sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client.lanes import Parcel
from tidelog.storage.errors import Invalid, OutOfRange, TooLarge, UnsupportedMedia

REFUSALS_MAX = 64
RECORD_FIELDS = frozenset({None, "records", "value", "key", "timestamp", "headers", "partition"})
"""What a refusal blames when it may be about a record. Other fields are headers and parameters of the request."""


@dataclass(frozen=True)
class Refused:
    """A record that the broker did not take. `number`: how many records its producer was given before it, so 0 is the
    first that was sent. `error` is why; its `record` is the number too. `partition` is None if it was refused
    before it had one."""

    topic: str
    partition: int | None
    number: int
    key: bytes | None
    error: Invalid


class Refusals:
    """Refusals that nobody was told of yet: the first, and how many there are. Its producer holds the lock."""

    def __init__(self) -> None:
        self._first: Invalid | None = None
        self._count = 0

    def keep(self, refused: Refused) -> None:
        self._first = self._first or refused.error
        self._count += 1

    def raise_first(self) -> None:
        """Raise the first, if there is one, and forget all."""
        first, others = self._first, self._count - 1
        self._first, self._count = None, 0
        if first is not None:
            if others:
                first.add_note(f"{others} more records were refused")
            raise first


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a parcel, but for those left out. `rows` are their places in the parcel."""

    records: pa.Table
    rows: npt.NDArray[np.int64]


def whole(parcel: Parcel) -> Part:
    return Part(parcel.records, np.arange(parcel.records.num_rows))


def blames_a_record(error: Invalid) -> bool:
    """Whether leaving out a record could help. Otherwise the request itself is wrong."""
    if error.record is not None:
        return True
    if isinstance(error, OutOfRange | UnsupportedMedia):
        return False
    return isinstance(error, TooLarge) or error.field in RECORD_FIELDS


def parted(part: Part, error: Invalid) -> tuple[Part | None, Sequence[Part]]:
    """What of `part` is refused for good by `error`, and the parts to send again, in their order."""
    count = len(part.rows)
    if count == 1:
        return part, ()
    if error.record is not None and 0 <= error.record < count:
        culprit = error.record
        return _cut(part, culprit, culprit + 1), (_joined(_cut(part, 0, culprit), _cut(part, culprit + 1, count)),)
    return None, (_cut(part, 0, count // 2), _cut(part, count // 2, count))


def refused_of(topic: str, parcel: Parcel, part: Part, error: Invalid) -> Iterator[Refused]:
    """The records of `part`, refused by `error`, each by its number."""
    keys = part.records.column("key").to_pylist() if "key" in part.records.column_names else [None] * len(part.rows)
    for row, key in zip(part.rows.tolist(), keys, strict=True):
        number = parcel.number_of(row)
        told = _named(error, topic, parcel.partition, number, key)
        yield Refused(topic, parcel.partition, number, key, told)


def refused_here(topic: str, number: int, error: Invalid) -> Refused:
    """A record that cannot even be sent: it belongs to no partition yet."""
    told = Invalid(f"record {number} (from 0), for {topic}, was refused: {error}", field=error.field, record=number)
    return Refused(topic, None, number, None, told)


def _named(error: Invalid, topic: str, partition: int, number: int, key: bytes | None) -> Invalid:
    """`error` as that of one record, which its message names."""
    with_key = "" if key is None else f" with key {key[:80]!r}"
    text = f"record {number} (from 0){with_key}, for {topic}/{partition}, was refused: {error}"
    told = (
        TooLarge(text, limit_name=error.limit_name, limit_bytes=error.limit_bytes, record=number)
        if isinstance(error, TooLarge)
        else Invalid(text, field=error.field, record=number)
    )
    told.__cause__ = error
    return told


def _cut(part: Part, start: int, end: int) -> Part:
    return Part(part.records.slice(start, end - start), part.rows[start:end])


def _joined(first: Part, second: Part) -> Part:
    return Part(pa.concat_tables([first.records, second.records]), np.concatenate([first.rows, second.rows]))
