"""Finds the records for which a broker refuses a request, and what remains to be sent.

The broker takes nothing of a request that it refuses. If its problem names a record (`record`), that record is left out
and the rest is sent again. Otherwise the request is halved until one record remains. After `REFUSALS_MAX` refusals, a
refused part is given up as a whole, which bounds the requests that one bad batch can cause.

Everything here is pure; `delivery` sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client.lanes import Parcel
from tidelog.storage.errors import Invalid, OutOfRange, TooLarge, UnsupportedMedia

REFUSALS_MAX = 64
RECORD_FIELDS = frozenset({None, "records", "value", "key", "timestamp", "headers", "partition"})
"""A refusal with one of these fields may be about a record. Other fields are headers and parameters of the request."""


@dataclass(frozen=True)
class Refused:
    """A record that the broker did not take. `number` counts the records that its producer was given before it, so the
    first one has 0. `error` says why; its `record` is the same number. `partition` is None if the record was refused
    before it had one."""

    topic: str
    partition: int | None
    number: int
    key: bytes | None
    error: Invalid


class Refusals:
    """Refusals that the program has not seen yet: the first one, and their number. The producer holds its lock.
    `seen`: reports it to the program at once, if it can; then the refusal is not kept."""

    def __init__(self, seen: Callable[[Refused], bool] = lambda _: False) -> None:
        self._seen = seen
        self._first: Invalid | None = None
        self._count = 0

    def keep(self, refused: Refused) -> None:
        if not self._seen(refused):
            self._first = self._first or refused.error
            self._count += 1

    def raise_first(self) -> None:
        """Raise the first, if there is one, and forget all of them."""
        first, others = self._first, self._count - 1
        self._first, self._count = None, 0
        if first is not None:
            if others:
                first.add_note(f"{others} more records were refused")
            raise first


@dataclass(frozen=True)
class Part:
    """Rows of a parcel in their order. `rows` are their places in the parcel."""

    records: pa.Table
    rows: npt.NDArray[np.int64]


def whole(parcel: Parcel) -> Part:
    return Part(parcel.records, np.arange(parcel.records.num_rows))


def blames_a_record(error: Invalid) -> bool:
    """Whether the request could succeed without some record. Otherwise the request itself is wrong."""
    if error.record is not None:
        return True
    if isinstance(error, OutOfRange | UnsupportedMedia):
        return False
    return isinstance(error, TooLarge) or error.field in RECORD_FIELDS


def refused_and_rest(part: Part, error: Invalid) -> tuple[Part | None, Sequence[Part]]:
    """The part that `error` refuses for good, and the parts to send again, in their order."""
    count = len(part.rows)
    if count == 1:
        return part, ()
    if error.record is not None and 0 <= error.record < count:
        culprit = error.record
        return _cut(part, culprit, culprit + 1), (_joined(_cut(part, 0, culprit), _cut(part, culprit + 1, count)),)
    return None, (_cut(part, 0, count // 2), _cut(part, count // 2, count))


def refused_of(topic: str, parcel: Parcel, part: Part, error: Invalid) -> Iterator[Refused]:
    """A `Refused` for each record of `part`, which `error` refuses."""
    keys = part.records.column("key").to_pylist() if "key" in part.records.column_names else [None] * len(part.rows)
    for row, key in zip(part.rows.tolist(), keys, strict=True):
        number = parcel.number_of(row)
        yield Refused(topic, parcel.partition, number, key, _named(error, topic, parcel.partition, number, key))


def refused_here(topic: str, number: int, error: Invalid) -> Refused:
    """A record that Arrow cannot take. It has no partition yet."""
    named = Invalid(f"record {number} (from 0), for {topic}, was refused: {error}", field=error.field, record=number)
    return Refused(topic, None, number, None, named)


def _named(error: Invalid, topic: str, partition: int, number: int, key: bytes | None) -> Invalid:
    """`error` as the error of one record, with the record in the message."""
    with_key = "" if key is None else f" with key {key[:80]!r}"
    text = f"record {number} (from 0){with_key}, for {topic}/{partition}, was refused: {error}"
    named = (
        TooLarge(text, limit_name=error.limit_name, limit_bytes=error.limit_bytes, record=number)
        if isinstance(error, TooLarge)
        else Invalid(text, field=error.field, record=number)
    )
    named.__cause__ = error
    return named


def _cut(part: Part, start: int, end: int) -> Part:
    return Part(part.records.slice(start, end - start), part.rows[start:end])


def _joined(first: Part, second: Part) -> Part:
    return Part(pa.concat_tables([first.records, second.records]), np.concatenate([first.rows, second.rows]))
