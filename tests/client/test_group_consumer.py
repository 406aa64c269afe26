"""Consumers of a group with a real broker: shared partitions, commits, callbacks, pauses, deaths and bounds."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.attempts import attempts, quicker_than
from tests.client.relay import Relay
from tests.end_to_end.broker_process import BrokerProcess

from tidelog.client import Admin, CommittedPosition, Consumer, ConsumerOptions, Producer, TopicPartition
from tidelog.storage.errors import Invalid, NotFound, TidelogError, Unavailable, UnknownMember

WAIT_S = 20.0
QUICK = ConsumerOptions(auto_commit_interval_s=0.05, session_timeout_s=1.0, close_timeout_s=2.0)
MANUAL = ConsumerOptions(auto_commit=False)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def produce(broker: str, topic: str, count: int, first: int = 0) -> None:
    """Records named by a number, in turn over three partitions."""
    with Producer(broker, topic) as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, partition=number % 3)


def until(done: Callable[[], bool], *consumers: Consumer) -> list[bytes | None]:
    """Poll `consumers` until `done`. Returns the values that came."""
    found: list[bytes | None] = []
    give_up_at = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < give_up_at, "the condition was not met in time"
        for consumer in consumers:
            batch = consumer.poll(0.05)
            if batch is not None:
                found += batch.records.column("value").to_pylist()
    return found


def values(consumer: Consumer, count: int) -> list[bytes | None]:
    """Read `count` records."""
    found: list[bytes | None] = []
    give_up_at = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < give_up_at, f"only {len(found)} of {count} came"
        batch = consumer.poll(0.2)
        if batch is not None:
            found += batch.records.column("value").to_pylist()
    return found


def test_the_next_consumer_goes_on_where_the_last_one_stopped(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group) as consumer:
        assert sorted(values(consumer, 30)) == sorted(b"%d" % n for n in range(30))
    produce(broker, topic, 6, first=30)
    with Consumer(broker, topic, group=group) as consumer:
        assert sorted(values(consumer, 6)) == sorted(b"%d" % n for n in range(30, 36))
        assert {at.offset for at in consumer.committed().values()} == {10}


def test_members_share_the_partitions_and_take_over(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group, options=QUICK) as first:
        values(first, 30)
        with Consumer(broker, topic, group=group, options=QUICK) as second:
            again = until(lambda: len(second.assignment) == 1 and len(first.assignment) == 2, first, second)
            assert again == [], "what was committed before the revocation is not read again"
            assert not first.assignment & second.assignment
        until(lambda: len(first.assignment) == 3, first)


def test_callbacks_come_in_order_and_may_seek_and_commit(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    told: list[tuple[str, int]] = []

    def assigned(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        told.append(("assigned", len(partitions)))
        for partition in partitions:
            consumer.seek(partition, 8)

    def revoked(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        told.append(("revoked", len(partitions)))
        consumer.commit({partition: CommittedPosition(9, "by hand") for partition in partitions})

    with Consumer(broker, group=group, options=MANUAL) as consumer:
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        assert len(values(consumer, 6)) == 6
    assert told == [("assigned", 3), ("revoked", 3)]
    with Admin(broker) as admin:
        offsets = admin.group_offsets(group)
    assert set(offsets.values()) == {CommittedPosition(9, "by hand")}


def test_a_record_in_work_is_read_again_after_an_error_and_the_ones_before_are_not(
    broker: str, topic: str, group: str
) -> None:
    with Producer(broker, topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number, partition=0)

    def work(consumer: Consumer) -> None:
        for record in consumer:
            if record.offset == 6:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Consumer(broker, topic, group=group) as consumer:
        work(consumer)
    with Consumer(broker, topic, group=group) as consumer:
        assert next(iter(consumer)).offset == 6
    with Consumer(broker, topic, group=group) as consumer:
        assert next(iter(consumer)).offset == 7, "breaking off is no error: the record is done"


def test_a_loop_that_is_entered_again_goes_on_with_the_next_record(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group) as consumer:
        seen = []
        for _ in range(30):
            for record in consumer:
                seen.append((record.partition, record.offset))
                break
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(10)]


def test_without_auto_commit_nothing_is_committed_but_by_the_program(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group, options=MANUAL) as consumer:
        values(consumer, 30)
    with Consumer(broker, topic, group=group, options=MANUAL) as consumer:
        values(consumer, 30)
        outcome: list[TidelogError | None] = []
        done = threading.Event()
        consumer.commit_async(on_commit=lambda error: (outcome.append(error), done.set()))
        assert done.wait(WAIT_S)
        assert outcome == [None]
        assert set(consumer.committed().values()) == {CommittedPosition(10)}


def test_a_paused_partition_stays_assigned_and_gives_nothing(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group) as consumer:
        until(lambda: len(consumer.assignment) == 3, consumer)
        still = TopicPartition(topic, 1)
        consumer.seek(still, 0)
        consumer.pause([still])
        assert consumer.paused == {still}
        produce(broker, topic, 30, first=30)
        others = dict.fromkeys(consumer.assignment - {still}, 20)
        until(lambda: all(consumer.position(one) == end for one, end in others.items()), consumer)
        assert consumer.position(still) == 0
        consumer.resume([still])
        until(lambda: consumer.position(still) == 20, consumer)
        assert consumer.lag(still) == 0


def test_a_program_that_works_long_stays_and_one_that_hangs_leaves_and_comes_back(
    broker: str, topic: str, group: str
) -> None:
    options = ConsumerOptions(session_timeout_s=1.0, max_poll_interval_s=3.0)
    lost: list[TopicPartition] = []
    with Consumer(broker, group=group, options=options) as consumer, Admin(broker) as admin:
        consumer.subscribe(topic, on_lost=lambda _, partitions: lost.extend(partitions))
        until(lambda: len(consumer.assignment) == 3, consumer)
        time.sleep(1.5)  # longer than the session, as a program that works on a batch
        assert len(admin.group(group).members) == 1
        give_up_at = time.monotonic() + WAIT_S
        while admin.group(group).members:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        until(lambda: len(lost) == 3 and len(consumer.assignment) == 3, consumer)


def test_a_program_that_is_slow_with_each_record_stays_and_gives_partitions_up_within_a_batch(
    broker: str, topic: str, group: str
) -> None:
    options = ConsumerOptions(session_timeout_s=1.0, max_poll_interval_s=1.0, auto_commit_interval_s=0.1)
    produce(broker, topic, 300)
    lost: list[TopicPartition] = []
    seen: list[tuple[int, int]] = []
    with Consumer(broker, group=group, options=options) as slow, ExitStack() as stack:
        slow.subscribe(topic, on_lost=lambda _, partitions: lost.extend(partitions))
        began, other = time.monotonic(), None
        for record in slow:
            seen.append((record.partition, record.offset))
            time.sleep(0.1)
            if other is None and time.monotonic() - began > 2.0:
                other = stack.enter_context(Consumer(broker, topic, group=group, options=options))
            if other is not None:
                other.poll(0)
                if other.assignment:
                    break
            assert time.monotonic() - began < WAIT_S, "a batch of 100 records was finished first"
        assert lost == []
        assert len(seen) == len(set(seen)), "records that were done came again"
        assert len(slow.assignment) == 2


def test_topics_that_match_a_pattern_and_new_partitions_are_picked_up(broker: str, group: str) -> None:
    prefix = f"p{uuid.uuid4().hex}"
    with Admin(broker) as admin, Consumer(broker, group=group, options=QUICK) as consumer:
        admin.create_topic(f"{prefix}-a", 1)
        consumer.subscribe(pattern=f"{prefix}-.*")
        until(lambda: len(consumer.assignment) == 1, consumer)
        admin.create_topic(f"{prefix}-b", 1)
        until(lambda: len(consumer.assignment) == 2, consumer)
        admin.alter_topic(f"{prefix}-a", partitions=3)
        until(lambda: len(consumer.assignment) == 4, consumer)


def test_a_consumer_without_subscription_commits_for_partitions_of_its_own_choice(
    broker: str, topic: str, group: str
) -> None:
    produce(broker, topic, 30)
    mine = TopicPartition(topic, 2)
    with Consumer(broker, group=group) as consumer:
        consumer.assign([mine])
        assert len(values(consumer, 10)) == 10
    with Consumer(broker, group=group) as consumer:
        consumer.assign([mine])
        assert consumer.position(mine) == 10
        assert consumer.committed([mine]) == {mine: CommittedPosition(10)}


def test_a_member_that_the_group_took_out_is_told_at_its_commit(broker: str, topic: str, group: str) -> None:
    options = ConsumerOptions(max_poll_interval_s=0.5, auto_commit=False)
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group, options=options) as consumer, Admin(broker) as admin:
        values(consumer, 30)
        give_up_at = time.monotonic() + WAIT_S
        while admin.group(group).members:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        with pytest.raises(UnknownMember):
            consumer.commit()
        assert admin.group_offsets(group) == {}
        assert len(values(consumer, 30)) == 30, "it joins again and reads again"


def test_closing_waits_for_commits_that_were_begun(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    outcomes: list[TidelogError | None] = []
    with Consumer(broker, topic, group=group, options=MANUAL) as consumer:
        values(consumer, 30)
        for _ in range(5):
            consumer.commit_async(on_commit=outcomes.append)
    assert outcomes == [None] * 5
    with Admin(broker) as admin:
        assert set(admin.group_offsets(group).values()) == {CommittedPosition(10)}


def test_a_commit_that_closing_could_not_await_is_told_as_failed(broker: str, topic: str, group: str) -> None:
    produce(broker, topic, 30)
    outcomes: list[TidelogError | None] = []
    with Relay(broker).running() as relay:
        options = ConsumerOptions(auto_commit=False, close_timeout_s=0.5)
        consumer = Consumer(relay.url, topic, group=group, options=options)
        values(consumer, 30)
    for _ in range(3):
        consumer.commit_async(on_commit=outcomes.append)
    consumer.close()
    give_up_at = time.monotonic() + WAIT_S
    while len(outcomes) < 3:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    assert all(isinstance(one, Unavailable) for one in outcomes)


def test_an_error_of_the_programs_own_callback_is_logged(
    broker: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, 30)
    with Consumer(broker, topic, group=group, options=MANUAL) as consumer:
        values(consumer, 30)
        consumer.commit_async(on_commit=lambda _: 1 / 0)  # type: ignore[arg-type,return-value]  # the mistake under test
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda broker: Consumer(broker, group="g", partitions=[0]), Invalid),
        (lambda broker: Consumer(broker, group="g").subscribe(), Invalid),
        (lambda broker: Consumer(broker).subscribe("web"), Invalid),
        (lambda broker: Consumer(broker).committed([TopicPartition("web", 0)]), Invalid),
        (lambda broker: Consumer(broker, "web", group="no\nline").poll(5), Invalid),
        (lambda broker: Consumer(broker, "web", options=ConsumerOptions(compression="gzip")), Invalid),  # type: ignore[arg-type]  # the mistake under test
        (lambda broker: ConsumerOptions(max_poll_interval_s=0), Invalid),
        (lambda broker: Admin(broker).group("never-used"), NotFound),
    ],
)
def test_misuse_is_told(broker: str, make: Callable[[str], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        make(broker)


def test_closing_is_bounded_when_the_broker_is_gone(
    broker: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidelog.client")
    produce(broker, topic, 30)
    for number, attempt in enumerate(attempts()):
        with Relay(broker).running() as relay:
            options = ConsumerOptions(close_timeout_s=1.0)
            consumer = Consumer(relay.url, topic, group=f"{group}-{number}", options=options)
            values(consumer, 30)
        with attempt, quicker_than(1.0 + 1.5, "closing"):
            consumer.close()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}", "num.partitions": 3})
    process.start()
    yield process
    process.stop()


class Worker:
    """`group_worker` in a process; `seen` has the records that it printed."""

    def __init__(self, broker: str, topic: str, group: str) -> None:
        command = [sys.executable, "-m", "tests.client.group_worker", broker, topic, group]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.seen: list[tuple[int, int]] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                partition, offset = line.split()
                self.seen.append((int(partition), int(offset)))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()


def test_no_record_is_skipped_while_consumers_and_the_broker_are_killed(durable: BrokerProcess) -> None:
    with Admin(durable.url) as admin, ExitStack() as stack:
        admin.create_topic("load", 3)
        workers = [Worker(durable.url, "load", "g") for _ in range(2)]
        for worker in workers:
            stack.callback(worker.kill)

        def seen() -> set[tuple[int, int]]:
            return {one for worker in workers for one in worker.seen}

        def wait_for(count: int) -> None:
            give_up_at = time.monotonic() + 2 * WAIT_S
            while len(seen()) < count:
                assert time.monotonic() < give_up_at, f"{len(seen())} of {count} records were read"
                time.sleep(0.05)

        produce(durable.url, "load", 300)
        wait_for(300)
        workers[0].kill()
        produce(durable.url, "load", 300, first=300)
        wait_for(600)
        durable.kill()
        durable.start()
        produce(durable.url, "load", 300, first=600)
        wait_for(900)
    assert seen() == {(partition, offset) for partition in range(3) for offset in range(300)}
