"""Parts of the load programs: bodies, byte counts, s2's protobuf, and children that end with their run."""

import json
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from benchmarks import s2_lite
from benchmarks.kafka import fetch_mb_per_s, windows_mb_per_s
from benchmarks.loads.fetch_arrow import value_bytes_of
from benchmarks.loads.prebuilt import Load, arrow_body, base64_body, json_body, load_options
from benchmarks.loads.result import Latency, LoadResult, percentile_ms
from benchmarks.payloads import COUNTS, mean_bytes, payload_file
from benchmarks.processes import Children, Failed, alone, run

VALUES = [b"one", b"", b"three" * 100]
CONSUMER_OUTPUT = """start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-21 10:00:00:000, 2026-11-21 10:00:02:000, 100.0000, 50.0, 1000, 500.0, 1000, 1000, 100.0, 1000.0
"""


def test_bodies_hold_the_values() -> None:
    _, body = arrow_body(VALUES)
    assert pa.ipc.open_stream(body).read_all()["value"].to_pylist() == VALUES
    _, text = json_body(VALUES)
    assert [record["value"].encode() for record in json.loads(text)["records"]] == VALUES
    _, encoded = base64_body(VALUES)
    assert json.loads(encoded)["records"][0] == {"value": {"base64": "b25l"}}


def test_value_bytes_are_those_of_the_batch_alone() -> None:
    batch = pa.record_batch({"value": pa.array([b"skipped", *VALUES], pa.binary())}).slice(1)
    assert value_bytes_of(batch) == sum(map(len, VALUES))


def test_s2_bodies_hold_as_many_records_as_given() -> None:
    assert s2_lite.records_in(s2_lite.append_input(VALUES)) == len(VALUES)
    assert s2_lite.append_input([b"ab"]) == b"\x0a\x04\x1a\x02ab"


def test_kafkas_mib_become_mb() -> None:
    assert fetch_mb_per_s(CONSUMER_OUTPUT) == pytest.approx(104.8576)


def test_percentiles_are_in_milliseconds() -> None:
    assert percentile_ms([0.001, 0.002, 0.003], 0.5) == pytest.approx(2.0)


def test_a_p99_is_not_the_longest_time() -> None:
    found = Latency.of([number / 1e3 for number in range(100, 0, -1)])
    assert found == Latency(samples=100, p50_ms=50.0, p99_ms=99.0, longest_ms=100.0)
    assert str(found) == "request p50 50.0 ms, p99 99.0 ms"


def test_few_times_have_no_p99_but_a_longest() -> None:
    found = Latency.of([0.001] * 98 + [0.5])
    assert found is not None
    assert found.p99_ms is None
    assert str(found) == "request p50 1.0 ms, longest of 99 500.0 ms"


def test_missing_measurements_are_not_zero() -> None:
    assert Latency.of([]) is None
    with pytest.raises(ValueError, match="measures no latencies"):
        _ = LoadResult(10, 1_000_000, 2.0, 5, 0, 0.5).p99_ms


def test_bodies_do_not_depend_on_the_port(tmp_path: Path) -> None:
    payload = tmp_path / "lines"
    payload.write_bytes(b"\n".join(b"%d" % number for number in range(1000)))
    bodies = [
        load_options([*("--port", str(port), "--payload", str(payload), "--records", "1", "--batch", "5")])
        for port in (15_000, 31_999)
    ]
    assert Load(bodies[0]).bodies == Load(bodies[1]).bodies


def test_kafkas_windows_are_in_mb() -> None:
    line = "1234 records sent, 246.8 records/sec (100.00 MB/sec), 8.0 ms avg latency, 9.0 ms max latency.\n"
    assert windows_mb_per_s(line * 2) == [pytest.approx(104.8576)] * 2


def test_a_load_result_survives_its_output() -> None:
    result = LoadResult(10, 1_000_000, 2.0, 5, 0, 0.5, Latency(5, 1.0, None, 2.0))
    assert LoadResult.from_output(f"noise\n{result.to_json()}\n") == result
    assert (result.records_per_s, result.mb_per_s) == (5.0, 0.5)


def test_payloads_are_made_once_and_hold_lines(tmp_path: Path) -> None:
    path = payload_file(tmp_path, "letters")
    made = path.stat().st_mtime_ns
    assert len(path.read_bytes().splitlines()) == COUNTS["letters"]
    assert mean_bytes(path) == 1024
    assert payload_file(tmp_path, "letters").stat().st_mtime_ns == made


def test_children_end_with_their_run(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start(
            "sleeper", [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
        )
        child.wait_until(lambda: child.log.read_text() == "up\n")
    assert not psutil.pid_exists(child.pid)


def test_an_idle_child_is_paused_while_another_is_measured(tmp_path: Path) -> None:
    busy = "while True: pass"
    with Children(tmp_path) as children:
        active, idle = (children.start(name, [sys.executable, "-c", busy]) for name in ("active", "idle"))
        active.wait_until(lambda: active.cpu_seconds() > 0.1 and idle.cpu_seconds() > 0.1)

        def measured() -> float:
            """CPU time of the idle child while the active one gets some."""
            before, enough = idle.cpu_seconds(), active.cpu_seconds() + 0.2
            active.wait_until(lambda: active.cpu_seconds() > enough)
            return idle.cpu_seconds() - before

        idle_seconds, active_seconds = alone(active, idle, measured)
        assert idle_seconds < 0.05
        assert active_seconds > 0.05
        before = idle.cpu_seconds()
        active.wait_until(lambda: idle.cpu_seconds() > before + 0.05)  # the load continues afterwards


def test_settings_of_servers_are_noted_once(tmp_path: Path) -> None:
    children = Children(tmp_path)
    for _ in range(2):
        children.note_settings("Tidelog", {"shards": 1, "flush.interval.ms": 0})
        children.note_settings("Kafka", {})
    assert children.settings == ("Tidelog: flush.interval.ms=0, shards=1", "Kafka: defaults")


def test_a_child_that_ends_at_its_start_says_why(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"])
        with pytest.raises(Failed, match="no such thing"):
            child.wait_until(lambda: False)


def test_a_program_that_fails_shows_its_output() -> None:
    with pytest.raises(Failed, match="broken on purpose"):
        run([sys.executable, "-c", "raise SystemExit('broken on purpose')"])


def test_a_program_is_ended_after_its_time() -> None:
    began = time.monotonic()
    with pytest.raises(Failed, match="more than"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.5)
    assert time.monotonic() - began < 30
