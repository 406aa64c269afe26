"""A batch of a sink is in the log once, whatever ends, stalls or repeats its commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.broker.set_clock import SetClock
from tests.spark.sink_world import PARTITIONS, ROWS, Calls, Crash, SinkWorld, attempt, check_once, commit, stage

from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.stores.memory import MemoryObjectStore

CREATE = 2
"""The call of a commit that creates its mark: it lists the marks and reads the newest one before."""


@pytest.fixture(scope="module")
def world() -> Iterator[SinkWorld]:
    with SinkWorld() as running:
        yield running


@pytest.fixture
def topic(world: SinkWorld, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own; the sink has its name as well."""
    name = f"t{abs(hash(request.node.nodeid))}"
    world.create_topic(name)
    return name


def test_batches_are_appended_in_order_and_only_the_newest_marks_stay(world: SinkWorld, topic: str) -> None:
    for batch in range(3):
        attempt(world, topic, batch, "a", topic)
    check_once(world, topic, 3)
    assert world.objects(topic) == ["2/committed", "2/published"]


def test_a_batch_that_is_committed_again_appends_nothing(world: SinkWorld, topic: str) -> None:
    for batch, name in ((0, "a"), (0, "b"), (1, "c"), (0, "d"), (1, "e")):
        attempt(world, topic, batch, name, topic)
    assert check_once(world, topic, 2) == {0: "a", 1: "c"}


def test_drivers_that_commit_a_batch_at_once_append_the_rows_of_one_of_them(world: SinkWorld, topic: str) -> None:
    """Each has rows for a topic of its own, too. All of them find no mark; then all create it."""
    attempt(world, topic, 0, "a", topic)
    gate, drivers = threading.Event(), []
    for name in "abcd":
        world.create_topic(f"{topic}-{name}")
        parts = [*stage(world, topic, 1, name, topic), *stage(world, topic, 1, name, f"{topic}-{name}")]
        calls = Calls(CREATE, gate=gate)
        drivers.append(threading.Thread(target=commit, args=(world, topic, 1, parts, calls)))
        drivers[-1].start()
        assert calls.reached.wait(30)
    gate.set()
    for driver in drivers:
        driver.join()
    chosen = check_once(world, topic, 2)[1]
    for name in "abcd":
        rows = sum(len(world.values(f"{topic}-{name}", partition)) for partition in range(PARTITIONS))
        assert rows == (world.tasks * ROWS if name == chosen else 0)


def test_rows_of_failed_attempts_are_deleted_with_the_next_batch(world: SinkWorld, topic: str) -> None:
    attempt(world, topic, 0, "a", topic)
    stage(world, topic, 1, "failed", topic)
    attempt(world, topic, 1, "b", topic)
    stage(world, topic, 1, "late", topic)
    assert len(world.objects(topic)) > 2
    attempt(world, topic, 2, "c", topic)
    assert world.objects(topic) == ["2/committed", "2/published"]


def test_a_batch_without_rows_writes_a_mark_only_if_there_is_none(world: SinkWorld, topic: str) -> None:
    for batch in range(4):
        commit(world, topic, batch, [])
    assert world.objects(topic) == ["0/committed", "0/published"]
    attempt(world, topic, 4, "a", topic)


def test_a_stream_whose_marks_are_gone_is_refused(world: SinkWorld, topic: str) -> None:
    parts = stage(world, topic, 5, "a", topic)
    with pytest.raises(Conflict, match="firstBatch=5"):
        commit(world, topic, 5, parts)
    commit(world, topic, 5, parts, first=5)
    commit(world, topic, 6, stage(world, topic, 6, "a", topic))


def test_a_batch_that_brokers_may_have_forgotten_is_refused() -> None:
    """The driver ends after its mark, before it publishes, and starts again a day later."""
    clock = SetClock()
    with SinkWorld(MemoryObjectStore(clock)) as world:
        world.create_topic("late")
        mark = 2  # the calls before it: a listing, the mark itself
        with pytest.raises(Crash):
            attempt(world, "late", 0, "a", "late", Calls(mark))
        assert "0/committed" in world.objects("late")
        clock.pass_time(86_400.0)
        with pytest.raises(Conflict, match="may have forgotten it"):
            attempt(world, "late", 0, "b", "late")
        assert world.values("late", 0) == world.values("late", 1) == []


def test_more_parts_than_a_leader_remembers_are_published_again_without_effect(world: SinkWorld, topic: str) -> None:
    attempt(world, topic, 0, "a", topic)
    before_the_end = 4 + world.tasks * PARTITIONS
    with pytest.raises(Crash):
        attempt(world, topic, 1, "a", topic, Calls(before_the_end))
    assert "1/published" not in world.objects(topic)
    check_once(world, topic, 2)
    attempt(world, topic, 1, "b", topic)
    assert check_once(world, topic, 2) == {0: "a", 1: "a"}
    assert "1/published" in world.objects(topic)


def test_a_batch_that_the_brokers_remember_is_completed_at_any_age() -> None:
    clock = SetClock()
    with SinkWorld(MemoryObjectStore(clock)) as world:
        world.create_topic("late")
        attempt(world, "late", 0, "a", "late")
        with pytest.raises(Crash):
            attempt(world, "late", 1, "a", "late", Calls(12))
        clock.pass_time(86_400.0)
        attempt(world, "late", 1, "b", "late")
        assert check_once(world, "late", 2) == {0: "a", 1: "a"}


def test_the_topic_of_a_committed_batch_is_deleted(world: SinkWorld, topic: str) -> None:
    attempt(world, topic, 0, "a", topic)
    parts = stage(world, topic, 1, "a", topic)
    world.http.delete(f"/v1/topics/{topic}").raise_for_status()
    with pytest.raises(NotFound, match="batch 1"):
        commit(world, topic, 1, parts)
