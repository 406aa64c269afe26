"""kill -9 at any moment, SIGTERM at any moment: every acknowledged record is there, once and in order."""

import itertools
import os
import random
import time
from collections import defaultdict

import pytest
from tests.attempts import attempts, quicker_than
from tests.end_to_end.broker_process import BrokerProcess
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin, Consumer

ROUNDS = 3
SIGTERM_S_MAX = 10.0


def load_on(broker: BrokerProcess, topic: str) -> SteadyLoad:
    with Admin(broker.url) as admin:
        admin.create_topic(topic, partitions=3)
    return SteadyLoad(broker.url, topic)


def prove_kill_9_loses_nothing(broker: BrokerProcess, topic: str, seed: int) -> None:
    draw = random.Random(seed)
    with load_on(broker, topic) as load:
        for _ in range(ROUNDS):
            load.await_acknowledged(draw.randrange(1, 4_000))
            broker.kill()
            broker.start()
        load.await_acknowledged(1_000)
        load.finish()
        assert load.failure is None
        assert load.acknowledged == sum(load.sent)
        load.assert_whole(broker.url, topic)


@pytest.mark.parametrize("seed", range(2))
def test_after_kill_9_under_load_every_record_is_there_once_and_in_order(
    shared_broker: BrokerProcess, seed: int
) -> None:
    prove_kill_9_loses_nothing(shared_broker, f"killed-{seed}", seed)


@pytest.mark.soak
def test_kill_9_again_and_again_loses_nothing(shared_broker: BrokerProcess) -> None:
    end_at = time.monotonic() + 60 * float(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))
    for seed in itertools.count(100):
        prove_kill_9_loses_nothing(shared_broker, f"load-{seed}", seed)
        if time.monotonic() > end_at:
            return


def test_a_consumer_follows_through_a_crash_and_sees_each_record_once(shared_broker: BrokerProcess) -> None:
    seen: defaultdict[int, list[int]] = defaultdict(list)
    with load_on(shared_broker, "followed") as load, Consumer(shared_broker.url, "followed") as consumer:
        for count, record in enumerate(consumer.records(), start=1):
            seen[record.partition].append(record.offset)
            if count == 1_000:
                shared_broker.kill()
                shared_broker.start()
            if count == 5_000:
                break
        assert load.failure is None
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


def test_sigterm_under_load_exits_0_in_time_and_keeps_every_acknowledged_record(shared_broker: BrokerProcess) -> None:
    with load_on(shared_broker, "stopped") as load:
        load.await_acknowledged(2_000)
        began = time.monotonic()
        shared_broker.terminate()
        assert shared_broker.wait() == 0
        assert time.monotonic() - began < SIGTERM_S_MAX
        shared_broker.start()
        load.await_acknowledged(1_000)
        load.finish()
        assert load.failure is None
        load.assert_whole(shared_broker.url, "stopped")


def test_sigterm_with_nothing_to_do_is_quick(shared_broker: BrokerProcess) -> None:
    for attempt in attempts():
        with attempt, quicker_than(SIGTERM_S_MAX / 2, "a stop"):
            assert shared_broker.stop() == 0
        if attempt.slow:
            shared_broker.start()
