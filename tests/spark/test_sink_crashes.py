"""The commit of a batch, ended or stalled between any two of its calls, and then begun again."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.spark.sink_world import PARTITIONS, ROWS, Calls, Crash, SinkWorld, attempt, check_once, commit, stage

from tidelog.spark_connector.sinks.committed_batch import StagedPart
from tidelog.storage.errors import Conflict, NotFound

PAIRS = 15


@pytest.fixture(scope="module")
def world() -> Iterator[SinkWorld]:
    with SinkWorld(tasks=2) as running:
        yield running


def calls_of_a_commit(world: SinkWorld, topic: str) -> int:
    """How many calls the commit of batch 1 makes, after batch 0."""
    counted = Calls()
    attempt(world, topic, 0, "a", topic)
    attempt(world, topic, 1, "a", topic, counted)
    return counted.count


def test_a_crash_between_any_two_calls_is_completed_by_the_next_start(world: SinkWorld) -> None:
    world.create_topic("count")
    total = calls_of_a_commit(world, "count")
    assert total >= 9
    for last in range(total):
        for after in (False, True):
            topic = f"crash-{last}-{after}"
            world.create_topic(topic)
            attempt(world, topic, 0, "a", topic)
            with pytest.raises(Crash):
                attempt(world, topic, 1, "a", topic, Calls(last, after=after))
            attempt(world, topic, 1, "b", topic)
            check_once(world, topic, 2)
            marks = ["1/committed", "1/published"]
            assert [each for each in world.objects(topic) if "replayed" not in each] == marks


def test_crashes_of_the_restart_are_completed_as_well(world: SinkWorld) -> None:
    chance, ended = random.Random(14), 0
    for number in range(PAIRS):
        topic = f"pair-{number}"
        world.create_topic(topic)
        attempt(world, topic, 0, "a", topic)
        for name in "abcd":
            try:
                attempt(world, topic, 1, name, topic, Calls(chance.randrange(12), after=chance.random() < 0.5))
            except Crash:
                ended += 1
        attempt(world, topic, 1, "e", topic)
        check_once(world, topic, 2)
    assert ended > 2 * PAIRS


@pytest.mark.parametrize("further", [1, 3])
def test_a_driver_that_stalls_at_any_call_while_another_one_goes_on_adds_nothing(
    world: SinkWorld, further: int
) -> None:
    """The stalled driver's rows are for a topic more, so no sequence of the other one's rows protects that topic."""
    world.create_topic(f"count-{further}")
    for last in range(calls_of_a_commit(world, f"count-{further}")):
        topic, more = f"stall-{further}-{last}", f"more-{further}-{last}"
        for name in (topic, more):
            world.create_topic(name)
        attempt(world, topic, 0, "a", topic)
        stalled = Calls(last, gate=threading.Event())
        parts = [*stage(world, topic, 1, "a", topic), *stage(world, topic, 1, "a", more)]
        driver = threading.Thread(target=_ignoring_refusals, args=(world, topic, 1, parts, stalled))
        driver.start()
        assert stalled.reached.wait(30)
        for batch in range(1, 1 + further):
            attempt(world, topic, batch, "b", topic)
        assert stalled.gate is not None
        stalled.gate.set()
        driver.join()
        chosen = check_once(world, topic, 1 + further)[1]
        rows = sum(len(world.values(more, partition)) for partition in range(PARTITIONS))
        assert rows == (world.tasks * ROWS if chosen == "a" else 0)


def _ignoring_refusals(world: SinkWorld, topic: str, batch: int, parts: list[StagedPart], calls: Calls) -> None:
    """A stalled driver may find that its objects are gone. It then appends nothing."""
    with suppress(Conflict, NotFound):
        commit(world, topic, batch, parts, calls)
