"""The result of one fetch of an instance's partitions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.services.broker.api.fetch import FetchedPart
from tidelog.services.broker.shard.record_columns import payload_bytes_total
from tidelog.services.consuming.assigned_partitions import Place
from tidelog.services.http.kafka_rest.record_page import Page, Run
from tidelog.storage.errors import NotFound, OutOfRange, TidelogError

RECORD_BYTES = 32


@dataclass
class FetchedRound:
    """`runs`: the records, and `ends`: for each run, where reading continues after all of them. `moved`: new positions
    of partitions without records. `outside`: partitions whose positions are not in their logs. `error`: the first one
    of another kind. `size_bytes`: of the records, each with `RECORD_BYTES` beside its key and value."""

    runs: list[Run] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    moved: dict[Place, int] = field(default_factory=dict)
    outside: dict[Place, OutOfRange] = field(default_factory=dict)
    error: TidelogError | None = None
    size_bytes: int = 0

    def suffices(self, bytes_min: int) -> bool:
        """Whether there are records, and enough of them."""
        return self.size_bytes >= max(1, bytes_min)


def round_of(parts: Sequence[FetchedPart], positions: Mapping[Place, int]) -> FetchedRound:
    """The result of a fetch, without the partitions that are not at their `positions` any more. A partition that does
    not exist is left out."""
    found = FetchedRound()
    for one in parts:
        place = (one.part.topic, one.part.partition)
        if positions.get(place) != one.part.offset:
            continue
        if one.fetched is None:
            _take_error(found, place, one.error)
            continue
        batches = [batch for batch in one.fetched.batches if batch.num_rows]
        if batches:
            found.runs.append(Run(*place, batches))
            found.ends.append(one.fetched.next_offset)
            found.size_bytes += sum(payload_bytes_total(batch) + RECORD_BYTES * batch.num_rows for batch in batches)
        elif one.fetched.next_offset > one.part.offset:
            found.moved[place] = one.fetched.next_offset
    return found


def offsets_after(found: FetchedRound, page: Page) -> dict[Place, int]:
    """The positions after the records of `page`, which may end before the last record of a run."""
    offsets: dict[Place, int] = {}
    for run, end, next_offset in zip(found.runs, found.ends, page.next_offsets, strict=True):
        if next_offset is not None:
            offsets[run.topic, run.partition] = end if next_offset == _after_last(run) else next_offset
    return offsets


def _take_error(found: FetchedRound, place: Place, error: TidelogError | None) -> None:
    if isinstance(error, OutOfRange):
        found.outside[place] = error
    elif not isinstance(error, NotFound):
        found.error = found.error or error


def _after_last(run: Run) -> int:
    last = next(batch for batch in reversed(run.batches) if batch.num_rows)
    offset: int = last.column("offset")[-1].as_py()
    return offset + 1
