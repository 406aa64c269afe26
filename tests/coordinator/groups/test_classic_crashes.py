"""Classic groups: another coordinator continues with what is stored."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.coordinator.groups.classic_group import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroup,
    again,
    beat,
    commit,
    join,
    leave,
    sync,
)

from tidelog.storage.errors import (
    MemberFenced,
    RebalanceInProgress,
)
from tidelog.wire.groups import Done


def test_a_new_coordinator_continues_in_stable_without_a_rebalance(group: ClassicGroup) -> None:
    joined = group.stable("a", "b", "c")
    before = group.members.describe()
    group.crash()
    assert group.members.describe() == before
    for each in joined.values():
        assert group.call(beat(each)) == Done()
        assert group.call(replace(sync(each), assignments=())).assignment == f"1/{each.member_id}".encode()
    group.members.check_commit(commit(joined["a"]))


def test_a_generation_without_an_assignment_is_never_used_again(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    second = group.call(again(a, topics=("clicks",)))
    assert second.generation == 2
    group.crash()
    with pytest.raises(MemberFenced):
        group.call(sync(second))
    assert group.call(beat(a)) == Done()
    assert group.call(again(a, topics=("clicks",))).generation == 3


def test_after_a_crash_between_the_writes_of_a_generation_all_members_join_again(group: ClassicGroup) -> None:
    """A store may need several steps for a large group."""
    first = group.stable("a", "b", "c")
    before = dict(group.stored)
    waiting = [group.send(again(each, topics=("clicks",))) for each in first.values()]
    second = group.answers(waiting)
    group.sync(second)
    after = dict(group.stored)
    for count in range(1, 4):
        changed = [key for key in after if "/members/" in key and after[key] != before[key]]
        group.stored = before | {key: after[key] for key in changed[:count]}
        group.crash()
        assert group.state == "PreparingRebalance"
        for each in first.values():
            with pytest.raises(RebalanceInProgress):
                group.call(beat(each))
        with pytest.raises(MemberFenced):
            group.call(sync(second[0]))
        joined = group.answers(group.send(again(each)) for each in first.values())
        assert len(group.sync(joined)) == 3
        group.crash()
        assert group.state == "Stable"


def test_a_static_member_that_came_back_in_a_rebalance_is_known_after_a_crash(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b", instance=True).values()
    waiting = group.send(join(instance_id="a", topics=("clicks",)))
    group.send(again(b, instance_id="b"))
    back = group.answer(waiting)
    group.crash()
    assert group.call(beat(back, generation=a.generation, instance_id="a")) == Done()
    assert group.call(replace(sync(back), generation=1, assignments=())).assignment == f"1/{a.member_id}".encode()


def test_after_a_crash_each_member_has_a_whole_session(group: ClassicGroup) -> None:
    a = group.stable("a")["a"]
    group.run(SESSION_MS - 1)
    group.crash()
    group.run(SESSION_MS - 1)
    assert group.call(beat(a)) == Done()


def test_sessions_and_barriers_begin_anew_after_a_pause(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    first = group.send(again(a))
    group.now_ms += REBALANCE_MS
    group.context.begin(group._moment(), {})
    group.members.extend_sessions()
    group.run(SESSION_MS - 1)
    assert first not in group.replies
    assert group.call(again(b)).generation == 2


def test_nothing_of_a_removed_member_stays_in_the_store(group: ClassicGroup) -> None:
    a, b = group.stable("a", "b").values()
    group.call(leave(a))
    group.sync([group.call(again(b))])
    assert len([key for key in group.stored if "/members/" in key]) == 1
