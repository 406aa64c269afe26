"""Consumer groups: subscriptions and topics that change."""

from __future__ import annotations

from tests.coordinator.groups.stepped_group import SteppedGroup, settle, web

from tidelog.coordinator.groups.group_step import TopicInfo
from tidelog.wire.groups import DescribeGroup


def test_new_partitions_and_topics_are_noticed() -> None:
    group = SteppedGroup()
    by_name, by_pattern = group.member("a"), group.member("b", topics=None, topic_pattern="w.*")
    settle(by_name, by_pattern)
    group.set_topic("web", TopicInfo("web#1", 6))
    group.set_topic("www", TopicInfo("www#1", 1))
    group.set_topic("not-www", TopicInfo("not-www#1", 1))
    settle(by_name, by_pattern)
    assert sorted(by_name.numbers + by_pattern.numbers) == [0, 0, 1, 2, 3, 4, 5]
    assert {part.topic for part in by_pattern.answer.assignment} == {"web", "www"}


def test_the_partitions_of_a_deleted_topic_are_taken_away() -> None:
    group = SteppedGroup(web=1, app=1)
    member = group.member("a")
    settle(member)
    group.set_topic("app", None)
    settle(member)
    assert member.answer.assignment == web(0)


def test_a_topic_that_was_created_again_is_given_up_and_assigned_anew() -> None:
    group = SteppedGroup(web=1)
    member = group.member("a")
    settle(member)
    group.set_topic("web", TopicInfo("web#2", 1))
    assert member.beat().assignment == ()
    assert member.beat().assignment == web(0)


def test_a_pattern_that_would_take_a_backtracking_engine_forever_takes_no_time() -> None:
    group = SteppedGroup()
    group.set_topic("a" * 240 + "b", TopicInfo("x", 1))
    member = group.member("a", topics=None, topic_pattern="(a+)+$")
    settle(member)
    assert member.numbers == []


def test_a_member_changes_its_subscription() -> None:
    group = SteppedGroup(web=1, app=1)
    a, b = group.member("a"), group.member("b")
    settle(a, b)
    a.beat(topics=("app",))
    settle(a, b)
    assert {part.topic for part in a.answer.assignment} == {"app"}
    assert b.answer.assignment == web(0)


def test_the_assignor_that_most_members_prefer_is_used() -> None:
    group = SteppedGroup(web=2, app=2)
    members = [group.member(name, assignor=wish) for name, wish in (("a", "range"), ("b", "range"), ("c", None))]
    settle(*members)
    assert group.call(DescribeGroup()).assignor == "range"
