"""Hand-made histories of consumer groups: some that the judge must accept, and one for each way to break a rule."""

from __future__ import annotations

from tests.chaos.checker.history import (
    FaultWindow,
    GroupCommit,
    GroupPlace,
    GroupRead,
    GroupStart,
    Heartbeat,
    History,
    Outcome,
    Run,
)
from tests.chaos.checker.history_lines import Operation
from tests.chaos.checker.violation import Rule
from tests.chaos.histories import TOPIC, calm_story, held, sent, story

GROUP = "g"
PLACE = GroupPlace(TOPIC, 0)
SESSION_S = 10.0


def beat(
    member: str,
    *,
    at: float,
    epoch: int,
    owned: bool = False,
    assigned: bool = False,
    outcome: Outcome = Outcome.OK,
    took: float = 0.5,
    code: str = "",
) -> Heartbeat:
    """A heartbeat of a member that owns the partition, or not, and is assigned it, or not."""
    held_now, may_read = (PLACE,) * owned, (PLACE,) * assigned
    return Heartbeat(
        member, GROUP, held_now, may_read, epoch, SESSION_S, start=at, end=at + took, outcome=outcome, code=code
    )


def committed(
    member: str, offset: int, *, at: float, epoch: int, outcome: Outcome = Outcome.OK, code: str = ""
) -> GroupCommit:
    return GroupCommit(member, GROUP, TOPIC, 0, offset, epoch, outcome, code, start=at, end=at + 0.5)


def began(member: str, offset: int, *, at: float) -> GroupStart:
    return GroupStart(member, GROUP, TOPIC, 0, offset, start=at, end=at + 0.5)


def given(member: str, offset: int, next_offset: int, *, at: float, epoch: int = 1, polled: bool = False) -> GroupRead:
    return GroupRead(member, GROUP, TOPIC, 0, offset, next_offset, epoch, polled, start=at, end=at + 0.5)


def group_story(*operations: Operation) -> History:
    """Ten records, and what a group does with them."""
    return story(sent("p", 0, 10, at=0, base=0), *operations, held(Run(0, "p", 0, 10)))


GOOD_GROUPS: dict[str, History] = {
    "a member hands a partition over": group_story(
        beat("a", at=1, epoch=1, assigned=True),
        began("a", 0, at=2),
        given("a", 0, 4, at=3),
        committed("a", 4, at=4, epoch=1),
        beat("a", at=5, epoch=2, owned=True),
        beat("a", at=6, epoch=2),
        beat("b", at=6.2, epoch=3, assigned=True),
        began("b", 4, at=7),
        given("b", 4, 10, at=8, epoch=3, polled=True),
        committed("a", 5, at=9, epoch=1, outcome=Outcome.CONFLICT),
        committed("b", 10, at=9, epoch=3),
        began("final", 10, at=12),
    ),
    "a member is silent, and another one has its partition after its session": group_story(
        beat("a", at=1, epoch=1, assigned=True),
        given("a", 0, 4, at=2),
        beat("b", at=11.5, epoch=2, assigned=True),
        began("b", 0, at=12),
        given("a", 4, 8, at=13),
        given("b", 0, 4, at=13, epoch=2),
        committed("b", 4, at=14, epoch=2),
        beat("a", at=15, epoch=0, owned=True, outcome=Outcome.CONFLICT),
    ),
    "a commit without an answer comes in late": group_story(
        beat("a", at=1, epoch=1, assigned=True),
        given("a", 0, 6, at=2),
        committed("a", 3, at=3, epoch=1, outcome=Outcome.UNKNOWN),
        committed("a", 6, at=4, epoch=1),
        began("final", 3, at=12),
    ),
    "a commit without an answer comes in late, and the next member commits from there on": group_story(
        given("a", 0, 6, at=1),
        committed("a", 3, at=2, epoch=1, outcome=Outcome.UNKNOWN),
        committed("a", 6, at=3, epoch=1),
        began("b", 3, at=4),
        given("b", 3, 4, at=5),
        committed("b", 4, at=6, epoch=1),
        began("final", 4, at=12),
    ),
    "two members read the same records, and both commit": group_story(
        given("a", 0, 4, at=1),
        given("b", 0, 6, at=2, epoch=2),
        committed("a", 4, at=3, epoch=1),
        committed("b", 6, at=3.2, epoch=2),
        began("c", 4, at=3.3),
        began("c", 6, at=3.3),
    ),
}


def wiped(at: float) -> FaultWindow:
    return FaultWindow("etcd wiped", at, at + 1)


GOOD_GROUPS |= {
    "etcd is wiped: members and epochs begin anew, and the last seconds of commits are lost": group_story(
        beat("a", at=1, epoch=7, assigned=True),
        given("a", 0, 6, at=1.5, epoch=7),
        committed("a", 3, at=2, epoch=7),
        committed("a", 6, at=20, epoch=7),
        beat("a", at=21, epoch=7, owned=True, assigned=True),
        wiped(22),
        beat("b", at=24, epoch=2, assigned=True),
        began("b", 3, at=25),
        given("b", 3, 4, at=25, epoch=2, polled=True),
        committed("b", 4, at=26, epoch=2),
    ),
}

BAD_GROUPS: dict[str, tuple[Rule, History]] = {
    "a partition is assigned before its owner has given it up": (
        Rule.TWO_OWNERS,
        group_story(
            beat("a", at=1, epoch=1, assigned=True),
            beat("b", at=3, epoch=2, assigned=True),
            beat("a", at=5, epoch=3, owned=True),
        ),
    ),
    "a partition is assigned to another within the owner's session": (
        Rule.TWO_OWNERS,
        group_story(beat("a", at=1, epoch=1, assigned=True), beat("b", at=9, epoch=2, assigned=True)),
    ),
    "a commit of an older epoch is accepted after a newer one": (
        Rule.STALE_COMMIT,
        group_story(
            given("a", 0, 6, at=1),
            committed("b", 4, at=2, epoch=2),
            committed("a", 6, at=3, epoch=1),
        ),
    ),
    "a member commits in an epoch that it has left": (
        Rule.STALE_COMMIT,
        group_story(
            given("a", 0, 6, at=1),
            beat("a", at=2, epoch=2),
            committed("a", 6, at=3, epoch=1),
        ),
    ),
    "a member polls in an old epoch after a newer one has committed": (
        Rule.STALE_READ,
        group_story(
            given("b", 0, 4, at=1, epoch=2),
            committed("b", 4, at=2, epoch=2),
            given("a", 4, 6, at=3, polled=True),
        ),
    ),
    "a commit is forgotten": (
        Rule.COMMIT_LOST,
        group_story(
            given("a", 0, 6, at=1),
            committed("a", 3, at=2, epoch=1),
            committed("a", 6, at=3, epoch=1),
            began("b", 3, at=4),
        ),
    ),
    "the only commit is forgotten": (
        Rule.COMMIT_LOST,
        group_story(given("a", 0, 6, at=1), committed("a", 6, at=2, epoch=1), began("final", 0, at=4)),
    ),
    "a member begins where nobody has committed": (
        Rule.COMMIT_LOST,
        group_story(given("a", 0, 6, at=1), committed("a", 6, at=2, epoch=1), began("b", 7, at=4)),
    ),
    "a member begins beyond the start although nobody has committed": (
        Rule.COMMIT_LOST,
        group_story(began("a", 3, at=1)),
    ),
    "etcd is wiped, and an old commit is lost": (
        Rule.COMMIT_LOST,
        group_story(
            given("a", 0, 6, at=1),
            committed("a", 3, at=2, epoch=1),
            committed("a", 6, at=3, epoch=1),
            wiped(22),
            began("b", 3, at=25),
        ),
    ),
    "an older offset is committed after a newer one": (
        Rule.COMMIT_WENT_BACK,
        group_story(
            given("a", 0, 6, at=1),
            committed("a", 6, at=2, epoch=1),
            committed("b", 4, at=3, epoch=1),
            began("final", 4, at=12),
        ),
    ),
    "a record is skipped": (
        Rule.UNREAD,
        group_story(
            given("a", 0, 3, at=1),
            given("a", 4, 6, at=2),
            committed("a", 6, at=3, epoch=1),
        ),
    ),
    "a record is committed before it is read": (
        Rule.UNREAD,
        group_story(committed("a", 6, at=1, epoch=1), given("a", 0, 6, at=2)),
    ),
    "a heartbeat fails in calm weather": (
        Rule.UNEXCUSED,
        calm_story(
            FaultWindow("broker killed", 10, 20),
            sent("p", 0, at=0, base=0),
            beat("a", at=60, epoch=0, outcome=Outcome.UNKNOWN, code="unavailable"),
            held(Run(0, "p", 0, 1)),
        ),
    ),
}
