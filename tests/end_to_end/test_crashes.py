"""kill -9 at any moment, SIGTERM at any moment: every acknowledged record is there, once and in order."""

import random
import time

import pytest
from tests.end_to_end.broker_process import BrokerProcess
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin

ROUNDS = 3
SIGTERM_S_MAX = 10.0


def load_on(broker: BrokerProcess, topic: str = "load") -> SteadyLoad:
    with Admin(broker.url) as admin:
        admin.create_topic(topic, partitions=3)
    return SteadyLoad(broker.url, topic)


@pytest.mark.parametrize("seed", range(2))
def test_after_kill_9_under_load_every_record_is_there_once_and_in_order(broker: BrokerProcess, seed: int) -> None:
    draw = random.Random(seed)
    with load_on(broker) as load:
        for _ in range(ROUNDS):
            load.await_acknowledged(draw.randrange(1, 6_000))
            broker.kill()
            broker.start()
        load.await_acknowledged(1_000)
        load.finish()
        assert load.failure is None
        assert load.acknowledged == sum(load.sent)
        load.assert_whole(broker.url, "load")


def test_sigterm_under_load_exits_0_in_time_and_keeps_every_acknowledged_record(broker: BrokerProcess) -> None:
    with load_on(broker) as load:
        load.await_acknowledged(3_000)
        began = time.monotonic()
        broker.terminate()
        assert broker.wait() == 0
        assert time.monotonic() - began < SIGTERM_S_MAX
        broker.start()
        load.await_acknowledged(1_000)
        load.finish()
        assert load.failure is None
        load.assert_whole(broker.url, "load")


def test_sigterm_with_nothing_to_do_is_quick(broker: BrokerProcess) -> None:
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < SIGTERM_S_MAX / 2
