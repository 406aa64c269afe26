"""Records what the members of groups asked for and were told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.checker.history import GroupCommit, GroupPlace, GroupRead, GroupStart, Heartbeat, Outcome
from tests.chaos.load.calls import Answer
from tests.chaos.load.recorder import Recorder

FENCED = frozenset({"unknown_member", "member_fenced"})
"""After these a member has lost its partitions, and joins again."""
STALE = "stale_member_epoch"
REFUSALS = FENCED | {STALE}

Place = tuple[str, int]


@dataclass(frozen=True)
class GroupRecorder:
    """The records of one group. A refusal because of the member or its epoch is no failure: the judge knows it."""

    recorder: Recorder
    group: str
    session_s: float

    def heartbeat(
        self, member: str, owned: Iterable[Place], assigned: Iterable[Place], epoch: int, answer: Answer
    ) -> None:
        heartbeat = Heartbeat(
            member=member,
            group=self.group,
            owned=_places(owned),
            assigned=_places(assigned),
            epoch=epoch,
            session_s=self.session_s,
            start=answer.start,
            end=answer.end,
            outcome=outcome_of(answer),
            code=answer.code,
        )
        self.recorder.grouped(f"{member} of {self.group}", heartbeat, answer, refusals=REFUSALS)

    def commit(
        self, member: str, offsets: Mapping[Place, int], epoch: int, answer: Answer, outcome: Outcome | None = None
    ) -> None:
        """`outcome`: if the answer is that of another call, which is recorded with its code."""
        for (topic, partition), offset in offsets.items():
            commit = GroupCommit(
                member=member,
                group=self.group,
                topic=topic,
                partition=partition,
                offset=offset,
                epoch=epoch,
                start=answer.start,
                end=answer.end,
                outcome=outcome or outcome_of(answer),
                code=answer.code if outcome is None else "",
            )
            self.recorder.grouped(f"{member} of {self.group}", commit, answer, refusals=REFUSALS)

    def start(self, member: str, place: Place, offset: int, answer: Answer) -> None:
        """`member` begins to read `place` at `offset`, as `answer` says."""
        start = GroupStart(member, self.group, *place, offset, start=answer.start, end=answer.end)
        self.recorder.grouped(f"{member} of {self.group}", start, answer, refusals=REFUSALS)

    def read(
        self, member: str, place: Place, offset: int, given: Sequence[int], epoch: int, answer: Answer, *, polled: bool
    ) -> None:
        """`member` asked for the records from `offset` on, and got those with the offsets `given`. The position that
        the answer names is no proof that the records below it came."""
        first, after = (given[0], given[-1] + 1) if given else (offset, offset)
        read = GroupRead(member, self.group, *place, first, after, epoch, polled, start=answer.start, end=answer.end)
        self.recorder.grouped(f"{member} of {self.group}", read, answer, refusals=REFUSALS)


def outcome_of(answer: Answer) -> Outcome:
    return Outcome.CONFLICT if answer.code in REFUSALS else answer.outcome


def places_in(parts: Iterable[Mapping[str, Any]]) -> set[Place]:
    """The partitions of an assignment."""
    return {(part["topic"], number) for part in parts for number in part["partitions"]}


def parts_of(places: Iterable[Place]) -> Sequence[Mapping[str, Any]]:
    """`places` as requests name them."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        numbers.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": found} for topic, found in numbers.items()]


def offsets_of(offsets: Mapping[Place, int]) -> Sequence[Mapping[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in offsets.items()
    ]


def offsets_in(records: Iterable[Mapping[str, Any]]) -> Sequence[int]:
    """The offsets of the records of an answer."""
    return [record["offset"] for record in records]


def _places(places: Iterable[Place]) -> tuple[GroupPlace, ...]:
    return tuple(GroupPlace(*place) for place in sorted(places))
