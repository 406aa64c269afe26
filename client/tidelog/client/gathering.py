"""Records become batches: one batch is being gathered, and a batch becomes the shares of its partitions.

Each record gets a number, which is how many records its producer was given before it, so that a refusal can name it.
`Gathering` only decides. Its producer holds the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.client.drafts import Draft, Numbers, Share, split
from tidelog.client.refusals import Refusals, refused_here
from tidelog.storage.errors import Invalid


class Gathering:
    """The batch being gathered is `draft`, begun at `since` (None: not yet). Records that Arrow cannot take go to
    `refusals`."""

    def __init__(self, topic: str, partition_count: int, refusals: Refusals) -> None:
        self.draft = Draft()
        self.since: float | None = None
        self._topic = topic
        self._partition_count = partition_count
        self._refusals = refusals
        self._turn = 0
        self._given = 0

    @property
    def first_number(self) -> int | None:
        """The number of the first record being gathered; None if there is none."""
        return self._given if len(self.draft) else None

    def begin(self, now: float, room_bytes: int) -> None:
        """The first record of a batch is there."""
        self.since = now
        self.draft.room_bytes += room_bytes

    def drop(self) -> int:
        """Forget the batch being gathered; how many records it had."""
        dropped = len(self.draft)
        self.draft, self.since = Draft(), None
        return dropped

    def seal(self) -> Sequence[Share]:
        """The shares of the batch being gathered; another begins."""
        draft, self.draft, self.since = self.draft, Draft(), None
        numbers: Numbers = self._next(len(draft))
        try:
            records, named = draft.table()
        except Invalid as error:
            numbers, draft = self._without_unfit(numbers, draft, error)
            records, named = draft.table()
        return self._split(records, named, numbers) if len(draft) else ()

    def shares(
        self, records: pa.Table, named: pa.ChunkedArray[Any] | None, partition: int | None = None
    ) -> Sequence[Share]:
        """The shares of a batch that is whole already; all of it is for `partition` if that is given."""
        numbers = self._next(records.num_rows)
        if partition is not None:
            return (Share(partition, records, records.nbytes, numbers),)
        return self._split(records, named, numbers)

    def _split(self, records: pa.Table, named: pa.ChunkedArray[Any] | None, numbers: Numbers) -> Sequence[Share]:
        turn, self._turn = self._turn, self._turn + 1
        count = self._partition_count
        keyless = turn % count
        return tuple(split(records, named, numbers=numbers, partition_count=count, keyless_partition=keyless))

    def _without_unfit(self, numbers: Numbers, draft: Draft, error: Invalid) -> tuple[Numbers, Draft]:
        """Refuse the records that Arrow cannot take; the others are returned."""
        unfit = draft.unfit_rows()
        for row in unfit:
            self._refusals.keep(refused_here(self._topic, int(numbers[row]), error))
        fit = np.delete(np.arange(len(draft)), unfit)
        return np.asarray(numbers)[fit], draft.picked(fit.tolist())

    def _next(self, count: int) -> range:
        """The numbers of the next `count` records."""
        self._given += count
        return range(self._given - count, self._given)
