"""Where the records of a produce are, record by record."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tidelog.services.broker.api.produce import Appended


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a record is."""

    partition: int
    offset: int


def placed(count: int, appended: Sequence[Appended]) -> list[Placed]:
    """The place of each of the `count` records of a request with `acks=all`."""
    if len(appended) == 1:
        one = appended[0]
        first = _base_offset(one)
        return [Placed(one.partition, offset) for offset in range(first, first + count)]
    partitions, offsets = np.empty(count, np.int64), np.empty(count, np.int64)
    for one in appended:
        assert one.rows is not None, "a share says which records it has"
        partitions[one.rows] = one.partition
        offsets[one.rows] = np.arange(_base_offset(one), _base_offset(one) + one.count)
    return list(map(Placed, partitions.tolist(), offsets.tolist()))


def _base_offset(one: Appended) -> int:
    assert one.base_offset is not None, "acks=all has an offset"
    return one.base_offset
