"""When a member of a group believed that it owned a partition, as far as its group answers for it.

A member owns a partition from the answer that assigns it. It owns it until it sends a request that does not name it any
more, or until its session is over: `session_s` after the start of its last request that was answered with success. If
the store of groups loses its data, nobody is a member any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.chaos.checker.history import GroupPlace, Heartbeat, Outcome


@dataclass(frozen=True, slots=True)
class Tenure:
    """`member` owned `place` from `begin` to `end`."""

    member: str
    place: GroupPlace
    begin: float
    end: float


def tenures(heartbeats: Iterable[Heartbeat], wiped_at: Sequence[float] = ()) -> Iterator[Tenure]:
    """The tenures of all members of one group. `wiped_at`: when its store lost its data."""
    of_members: dict[str, list[Heartbeat]] = defaultdict(list)
    for each in heartbeats:
        of_members[each.member].append(each)
    for member, sent in of_members.items():
        for tenure in _tenures(member, sorted(sent, key=lambda each: each.start)):
            end = min((at for at in wiped_at if at > tenure.begin), default=tenure.end)
            yield replace(tenure, end=min(tenure.end, end))


def _tenures(member: str, heartbeats: Sequence[Heartbeat]) -> Iterator[Tenure]:
    since: dict[GroupPlace, float] = {}
    session_end = 0.0
    for each in heartbeats:
        for place in [place for place in since if place not in each.owned]:
            yield Tenure(member, place, since.pop(place), min(each.start, session_end))
        if each.start > session_end:
            yield from (Tenure(member, place, begin, session_end) for place, begin in since.items())
            since.clear()
        if each.outcome is Outcome.OK:
            session_end = each.start + each.session_s
            for place in each.assigned:
                since.setdefault(place, each.end)
    yield from (Tenure(member, place, begin, session_end) for place, begin in since.items())
