"""`tidelog topic copy`: what is copied, and that a copy that stops anywhere continues without a gap or a double."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Tidelog
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.client import Admin, Consumer, Producer, ProducerOptions, Record
from tidelog.services.cli import copy_run
from tidelog.services.cli.copy_run import CopyRun
from tidelog.services.cli.copy_state import CopyState, held_since, read_state, write_state
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.partitioner import NO_PARTITION, partitions_of

PARTITIONS, RECORDS = 3, 3_000


@pytest.fixture
def names(broker: BrokerProcess, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A topic with `RECORDS` records of several forms, and the name of another one."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    with Admin(broker.url) as admin:
        admin.create_topic(name, PARTITIONS, {"retention.ms": -1})
    with Producer(broker.url, name) as producer:
        for n in range(RECORDS):
            headers = {1: [("n", b"%d" % n)], 2: [("n", None)]}.get(n % 5)
            key = None if n % 3 == 0 else b"k%d" % (n % 50)
            value = None if key and n % 7 == 0 else b"%d" % n
            producer.send(value, key, timestamp_ms=1_000 + n, headers=headers, partition=n % PARTITIONS)
    return name, f"{name}-copy"


def records(broker: BrokerProcess, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """Everything but the offsets, by partition."""
    found: dict[int, list[tuple[object, ...]]] = {}
    with Consumer(broker.url, topic) as consumer:
        for record in consumer.records(follow=False):
            found.setdefault(record.partition, []).append(_without_place(record))
    return found


def _without_place(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, tuple(record.headers)


def test_keys_values_headers_times_partitions_and_configs_are_kept(
    tidelog: Tidelog, broker: BrokerProcess, names: tuple[str, str]
) -> None:
    source, target = names
    copied = tidelog("topic", "copy", source, target, "--json")
    assert copied.returncode == 0, copied.stderr
    assert json.loads(copied.stdout)["records"] == RECORDS
    assert records(broker, target) == records(broker, source)
    with Admin(broker.url) as admin:
        assert admin.topic(target).configs == admin.topic(source).configs
    assert tidelog("topic", "copy", source, target).stderr == b"tidelog: 3,000 records from %s to %s\n" % (
        source.encode(),
        target.encode(),
    )
    assert sum(map(len, records(broker, target).values())) == 2 * RECORDS


def test_partitions_are_chosen_by_the_key_again(
    tidelog: Tidelog, broker: BrokerProcess, names: tuple[str, str]
) -> None:
    source, target = names
    tidelog("topic", "create", target, "-p", "2", "-c", "retention.ms=-1")
    refused = tidelog("topic", "copy", source, target)
    assert (refused.returncode, b"--partitions by-key" in refused.stderr) == (2, True)
    assert tidelog("topic", "copy", source, target, "--partitions", "by-key").returncode == 0
    import pyarrow as pa

    found = records(broker, target)
    for partition, each in found.items():
        keys = [record[0] for record in each if record[0] is not None]
        assert set(partitions_of(pa.chunked_array([pa.array(keys, pa.binary())]), 2)) - {NO_PARTITION} == {partition}
    everything = [record for each in records(broker, source).values() for record in each]
    assert sorted(map(repr, everything)) == sorted(map(repr, (one for each in found.values() for one in each)))


def test_a_topic_is_copied_to_another_cluster(
    tidelog: Tidelog, broker: BrokerProcess, names: tuple[str, str], tmp_path: Path
) -> None:
    source, _ = names
    other = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}"})
    other.start()
    try:
        assert tidelog("topic", "copy", source, source, "--to", other.url).returncode == 0
        assert records(other, source) == records(broker, source)
        run_tidelog(["profile", "set", "other", "--broker", other.url], environment=_profiles(tmp_path))
        arguments = ["topic", "copy", source, "again", "--to-profile", "other"]
        assert run_tidelog(arguments, broker=broker.url, environment=_profiles(tmp_path)).returncode == 0
        assert records(other, "again") == records(broker, source)
    finally:
        other.stop()


def _profiles(folder: Path) -> dict[str, str]:
    return {"TIDELOG_PROFILES": str(folder / "profiles.json")}


@pytest.mark.parametrize("placement", ["keep", "by-key"])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_copy_that_dies_anywhere_continues_without_a_gap_or_a_double(
    broker: BrokerProcess, names: tuple[str, str], placement: Any, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies some batches later than the one before, at a checkpoint or between two; the last one finishes."""
    source, target = names
    monkeypatch.setattr(copy_run, "FETCH_BYTES", 1_000)
    monkeypatch.setattr(copy_run, "CHECKPOINT_EVERY_S", 0.0 if step == 2 else 1_000.0)
    with Admin(broker.url) as admin:
        origin, copied = admin.topic(source), admin.create_topic(target, PARTITIONS, {"retention.ms": -1})
    first = {part.partition: part.log_start_offset for part in origin.partitions}
    saved = [CopyState(origin.topic_id, copied.topic_id, PARTITIONS, placement, f"copy.{step}.{target}", first)]
    deaths = 0
    while _died(broker, source, target, saved, step * (deaths + 1)):
        deaths += 1
    assert deaths
    found = records(broker, target)
    everything = [repr(record) for each in records(broker, source).values() for record in each]
    assert sorted(everything) == sorted(repr(record) for each in found.values() for record in each)
    if placement == "keep":
        assert found == records(broker, source)


class _Death(Exception):
    pass


def _died(broker: BrokerProcess, source: str, target: str, saved: list[CopyState], after: int) -> bool:
    """Run once from the last saved state; die after so many batches, with the last requests in any state."""
    state, batches = saved[-1], iter(range(after))

    def die_after_some(_: int) -> None:
        if next(batches, None) is None:
            raise _Death

    options = ProducerOptions(producer_id=state.producer_id, request_bytes=2_000, close_timeout_s=0.0)
    try:
        with Producer(broker.url, target, options) as producer:
            held = held_since(state, producer.resume())
            assert held is not None
            CopyRun(broker.url, source, producer, state, held, saved.append, die_after_some).run()
    except _Death:
        return True
    return False


def test_ctrl_c_saves_the_place_and_the_next_run_continues(
    tidelog: Tidelog, broker: BrokerProcess, names: tuple[str, str], tmp_path: Path
) -> None:
    source, target = names
    with Producer(broker.url, source) as producer:
        for n in range(60):
            producer.send(b"%d" % n + b"x" * 900_000, partition=n % PARTITIONS)
    file = tmp_path / "place"
    command = ["topic", "copy", source, target, "--resume", str(file), "--broker", broker.url]
    with ForkedTidelog(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as copying:
        wait_until(file.exists, 60.0)
        copying.send_signal(signal.SIGTERM)
        _, told = copying.communicate(timeout=60)
    if copying.returncode:  # a fast machine may have finished
        assert copying.returncode == 143, told
        assert b"run the same command again" in told
        state = read_state(file)
        assert state is not None
        assert state.settled
        other = tidelog("topic", "copy", source, f"{target}-other", "--resume", str(file))
        assert (other.returncode, b"another copy" in other.stderr) == (2, True)
        assert tidelog("topic", "copy", source, target, "--resume", str(file)).returncode == 0
    assert not file.exists()
    assert records(broker, target) == records(broker, source)


def test_a_target_that_has_forgotten_the_copy_is_not_guessed_at(
    tidelog: Tidelog, names: tuple[str, str], broker: BrokerProcess, tmp_path: Path
) -> None:
    source, target = names
    assert tidelog("topic", "copy", source, target).returncode == 0
    file = tmp_path / "place"
    with Admin(broker.url) as admin:
        ids = admin.topic(source).topic_id, admin.topic(target).topic_id
    state = CopyState(*ids, PARTITIONS, "keep", "unknown", dict.fromkeys(range(PARTITIONS), 900), {0: 900}, False)
    write_state(file, state)
    ended = tidelog("topic", "copy", source, target, "--resume", str(file))
    assert (ended.returncode, b"--allow-repeats" in ended.stderr) == (2, True)
    again = tidelog("topic", "copy", source, target, "--resume", str(file), "--allow-repeats", "--json")
    assert json.loads(again.stdout)["records"] == RECORDS - PARTITIONS * 900


def test_a_refused_record_ends_the_copy(tidelog: Tidelog, broker: BrokerProcess, names: tuple[str, str]) -> None:
    source, target = names
    tidelog("topic", "create", target, "-p", str(PARTITIONS), "-c", "max.message.bytes=1024")
    with Producer(broker.url, source) as producer:
        producer.send(b"x" * 2_000, b"large", partition=0)
    ended = tidelog("topic", "copy", source, target)
    assert ended.returncode == 2
    assert b"refused a record" in ended.stderr
    assert b"large" in ended.stderr


def test_a_topic_is_not_copied_to_itself(tidelog: Tidelog, names: tuple[str, str]) -> None:
    assert tidelog("topic", "copy", names[0], names[0]).returncode == 2
    assert tidelog("topic", "copy", "no-such", names[1]).returncode == 4


def test_the_difference_to_the_checkpoint_counts(tmp_path: Path) -> None:
    state = CopyState("a", "b", 2, "keep", "id", {0: 5}, {0: 5})
    assert held_since(state, {0: 7, 1: 3}) == {0: 2, 1: 3}
    assert held_since(state, {0: 4, 1: 3}) is None
    assert held_since(msgspec.structs.replace(state, exact=False), {0: 7}) is None
    write_state(tmp_path / "f", state)
    assert read_state(tmp_path / "f") == state
    assert read_state(tmp_path / "none") is None
    (tmp_path / "f").write_bytes(b"{}")
    with pytest.raises(Corrupt):
        read_state(tmp_path / "f")
    with pytest.raises(Invalid):
        write_state(tmp_path / "none" / "f", state)
