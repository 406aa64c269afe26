"""Where the records of a produce are, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from tidelog.services.broker.api.produce import Appended
from tidelog.storage.errors import TidelogError


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a record is."""

    partition: int
    offset: int


Places: TypeAlias = Sequence[Placed | TidelogError]
"""For each record of a request its place, or why it is not stored."""


def placed(count: int, appended: Sequence[Appended]) -> Places:
    """The place of each of the `count` records of a request with `acks=all`, or why it has none."""
    if len(appended) == 1:
        first = _base_offset(appended[0])
        return [Placed(appended[0].partition, offset) for offset in range(first, first + count)]
    stored = [one for one in appended if one.error is None]
    partitions, offsets = np.empty(count, np.int64), np.empty(count, np.int64)
    for one in stored:
        assert one.rows is not None, "a share says which records it has"
        partitions[one.rows] = one.partition
        offsets[one.rows] = np.arange(_base_offset(one), _base_offset(one) + one.count)
    places: list[Placed | TidelogError] = list(map(Placed, partitions.tolist(), offsets.tolist()))
    for one in appended:
        if one.error is not None and one.rows is not None:
            for row in one.rows.tolist():
                places[row] = one.error
    return places


def _base_offset(one: Appended) -> int:
    assert one.base_offset is not None, "acks=all has an offset"
    return one.base_offset
