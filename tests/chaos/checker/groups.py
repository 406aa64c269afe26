"""Rules on consumer groups: one owner of a partition at a time, no commit from an old epoch, at least once.

When etcd loses all its data, members and epochs begin anew, and the offsets that an operator recovers are up to 10 s
old (inv. 9). So epochs are compared within an **era** only: the time between two such events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tests.chaos.checker.history import (
    FaultWindow,
    GroupCommit,
    GroupPlace,
    GroupRead,
    GroupStart,
    Heartbeat,
    History,
    Outcome,
)
from tests.chaos.checker.ownership import Tenure, tenures
from tests.chaos.checker.violation import Findings, Rule, Violation

WIPED = "etcd wiped"
FORGOTTEN_S = 12.0
"""How old an acknowledged commit may be that a wipe of etcd loses: 10 s, and the time to write the copy."""


class Eras:
    """The times at which etcd loses its data and at which it is recovered, and the eras between them."""

    def __init__(self, faults: Iterable[FaultWindow]) -> None:
        self.wipes = sorted((fault.start, fault.end) for fault in faults if WIPED in fault.kind)
        self._bounds = sorted(at for wipe in self.wipes for at in wipe)

    def of(self, *times: float) -> int | None:
        """The era of `times`; None if they are not all in one."""
        eras = {bisect_left(self._bounds, at) for at in times}
        return eras.pop() if len(eras) == 1 else None

    def same(self, first: _Timed, second: _Timed) -> bool:
        return self.of(first.start, first.end, second.start, second.end) is not None

    def forgets(self, commit: GroupCommit) -> bool:
        """Whether a wipe may have lost `commit`."""
        return any(start - FORGOTTEN_S <= commit.end and commit.start <= end for start, end in self.wipes)


class _Timed(Protocol):
    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


class _Place(NamedTuple):
    group: str
    topic: str
    partition: int


_Operation = TypeVar("_Operation", GroupCommit, GroupRead, GroupStart)


def check_groups(history: History) -> Findings:
    """Check all rules of this module."""
    eras = Eras(history.faults)
    yield from _check_owners(history.heartbeats, eras)
    yield from _check_epochs_of_members(history, eras)
    commits = _by_place(history.group_commits)
    reads, starts = _by_place(history.group_reads), _by_place(history.group_starts)
    for place in {*commits, *starts}:
        of_place = commits[place]
        accepted = sorted((c for c in of_place if c.outcome is Outcome.OK), key=lambda commit: commit.start)
        yield from _check_epochs(place, accepted, eras)
        yield from _check_forward(place, accepted, of_place, eras)
        yield from _check_polls(place, accepted, reads[place], eras)
        yield from _check_all_read(place, accepted, reads[place])
        yield from _check_starts(place, of_place, starts[place], eras)


def _by_place(operations: Iterable[_Operation]) -> dict[_Place, list[_Operation]]:
    found: dict[_Place, list[_Operation]] = defaultdict(list)
    for each in operations:
        found[_Place(each.group, each.topic, each.partition)].append(each)
    return found


def _check_owners(heartbeats: Iterable[Heartbeat], eras: Eras) -> Findings:
    groups: dict[str, list[Heartbeat]] = defaultdict(list)
    for each in heartbeats:
        groups[each.group].append(each)
    for group, of_group in groups.items():
        last: dict[GroupPlace, Tenure] = {}
        for tenure in sorted(tenures(of_group, [start for start, _ in eras.wipes]), key=lambda tenure: tenure.begin):
            before = last.get(tenure.place)
            if before and before.member != tenure.member and tenure.begin < min(before.end, tenure.end):
                told = f"{before.member} until {before.end:.3f} and {tenure.member} from {tenure.begin:.3f}"
                yield Violation(Rule.TWO_OWNERS, f"{tenure.place} of {group} belonged to {told}")
            if before is None or tenure.end >= before.end:
                last[tenure.place] = tenure


def _check_epochs_of_members(history: History, eras: Eras) -> Findings:
    """A member that was told of an epoch cannot commit in an older one."""
    told: dict[tuple[str, str], list[Heartbeat]] = defaultdict(list)
    for each in history.heartbeats:
        if each.outcome is Outcome.OK:
            told[each.group, each.member].append(each)
    for commit in history.group_commits:
        if commit.outcome is Outcome.OK and any(
            each.epoch > commit.epoch and each.end < commit.start and eras.same(each, commit)
            for each in told[commit.group, commit.member]
        ):
            yield Violation(Rule.STALE_COMMIT, f"{_told(commit)}, which knew of a newer epoch, was accepted")


def _check_epochs(place: _Place, accepted: Sequence[GroupCommit], eras: Eras) -> Findings:
    newest: GroupCommit | None = None
    ended: list[GroupCommit] = []
    for commit in accepted:
        for each in [each for each in ended if each.end < commit.start]:
            ended.remove(each)
            newest = each if newest is None or not eras.same(each, newest) or each.epoch > newest.epoch else newest
        if newest is not None and newest.epoch > commit.epoch and eras.same(newest, commit):
            yield Violation(Rule.STALE_COMMIT, f"{_told(commit)} on {place} was accepted after {_told(newest)}")
        ended.append(commit)


def _check_forward(
    place: _Place, accepted: Sequence[GroupCommit], commits: Sequence[GroupCommit], eras: Eras
) -> Findings:
    """A member begins at the committed offset, so it cannot commit below it. A commit whose outcome is unknown may come
    late, and a member may begin there."""
    furthest: GroupCommit | None = None
    ended: list[GroupCommit] = []
    unknown = [commit for commit in commits if commit.outcome is Outcome.UNKNOWN]
    for commit in accepted:
        for each in [each for each in ended if each.end < commit.start]:
            ended.remove(each)
            ahead = furthest is not None and eras.same(each, furthest) and each.offset <= furthest.offset
            furthest = furthest if ahead else each
        late = any(each.offset <= commit.offset and each.start < commit.end for each in unknown)
        if furthest is not None and commit.offset < furthest.offset and eras.same(furthest, commit) and not late:
            yield Violation(Rule.COMMIT_WENT_BACK, f"{_told(commit)} on {place} was accepted after {_told(furthest)}")
        ended.append(commit)


def _check_polls(place: _Place, accepted: Sequence[GroupCommit], reads: Iterable[GroupRead], eras: Eras) -> Findings:
    for read in (each for each in reads if each.polled):
        newer = next((c for c in accepted if c.epoch > read.epoch and c.end < read.start and eras.same(c, read)), None)
        if newer is not None:
            told = f"{read.member} polled {place} in epoch {read.epoch} at {read.start:.3f}"
            yield Violation(Rule.STALE_READ, f"{told}, after {_told(newer)}")


def _check_all_read(place: _Place, accepted: Sequence[GroupCommit], reads: Iterable[GroupRead]) -> Findings:
    """Members begin at 0, so all that was read before a commit reaches from 0 to the commit."""
    waiting = sorted(reads, key=lambda read: read.end, reverse=True)
    known: list[GroupRead] = []
    reached = 0
    for commit in accepted:
        while waiting and waiting[-1].end <= commit.start:
            known.append(waiting.pop())
        known.sort(key=lambda read: read.offset)
        while known and known[0].offset <= reached:
            reached = max(reached, known.pop(0).next_offset)
        if commit.offset > reached:
            yield Violation(Rule.UNREAD, f"{_told(commit)} on {place}; nobody was given {reached}")
            reached = commit.offset


def _check_starts(place: _Place, commits: Sequence[GroupCommit], starts: Iterable[GroupStart], eras: Eras) -> Findings:
    for start in starts:
        if start.offset not in _possible(commits, start, eras):
            told = f"{start.member} began {place} at {start.offset} at {start.start:.3f}"
            last = max(
                (each for each in commits if each.outcome is Outcome.OK and each.end < start.start),
                key=lambda commit: commit.start,
                default=None,
            )
            yield Violation(Rule.COMMIT_LOST, f"{told}; last was {_told(last) if last else 'no commit'}")


def _possible(commits: Sequence[GroupCommit], start: GroupStart, eras: Eras) -> set[int]:
    """The offsets at which a member may begin: those of the last acknowledged commit, of commits at the same time, and
    of all whose outcome is unknown, which may come late. 0 if nothing is acknowledged."""
    begun = [commit for commit in commits if commit.start < start.end]
    accepted = [commit for commit in begun if commit.outcome is Outcome.OK]
    acknowledged = [commit for commit in accepted if commit.end < start.start and not eras.forgets(commit)]
    latest = max((commit.start for commit in acknowledged), default=float("-inf"))
    possible = {commit.offset for commit in begun if commit.outcome is Outcome.UNKNOWN}
    possible |= {commit.offset for commit in accepted if commit.end >= latest}
    return possible if acknowledged else possible | {0}


def _told(commit: GroupCommit) -> str:
    return f"the commit of {commit.offset} by {commit.member} in epoch {commit.epoch} at {commit.start:.3f}"
