"""Two compactors and a broker's archiver work on the same partitions, under load: no record is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.end_to_end.broker_process import TIDELOG, BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin

PARTITIONS = 6
STOP_S_MAX = 15.0
BUSY = {
    "flush.interval.ms": 100,
    "archiver.interval.ms": 100,
    "archiver.min.bytes": 1,
    "archiver.upkeep": "false",
}
"""A segment every few tenths of a second, and only the compactors merge: a broker would always be first."""


class Made(msgspec.Struct):
    """A line of the compactor's output."""

    topic: str
    shard: int
    version: int
    change: str
    removed: int
    added: int


class CompactorProcess:
    """`tidelog compactor` with rounds one second apart."""

    def __init__(self, store: str, folder: Path, name: str) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        arguments = ("compactor", "--store", store, "--interval", "1", "--json")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen([*TIDELOG, *arguments], stdout=out, stderr=err, env={**os.environ})

    def made(self) -> list[Made]:
        """The versions it has printed."""
        whole_lines = self._out.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line, type=Made) for line in whole_lines.splitlines()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S_MAX)

    def told(self) -> str:
        return self._err.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, {"store": f"file:{tmp_path / 'data'}", **BUSY})
    process.start()
    with Admin(process.url) as admin:
        admin.create_topic("t", PARTITIONS, {"segment.ms": 1})
    yield process
    process.stop()


@pytest.fixture
def compactors(broker: BrokerProcess, tmp_path: Path) -> Iterator[list[CompactorProcess]]:
    running = [CompactorProcess(f"file:{tmp_path / 'data'}", tmp_path, name) for name in ("one", "two")]
    yield running
    for compactor in running:
        if compactor.process.poll() is None:
            compactor.process.kill()
            compactor.process.wait()


def test_two_compactors_and_an_archiver_under_load_do_each_other_no_harm(
    broker: BrokerProcess, compactors: list[CompactorProcess], tmp_path: Path
) -> None:
    load = SteadyLoad(broker.url, "t")
    with load:
        wait_until(lambda: sum(len(each.made()) for each in compactors) >= 12, 60.0, lambda: compactors[0].told())
        load.await_acknowledged(1_000)
        assert [each.stop() for each in compactors] == [0, 0]
        load.finish()
    made = [version for each in compactors for version in each.made()]
    assert any(version.change == "merge" and version.removed > version.added > 0 for version in made)
    versions = [(version.shard, version.version) for version in made]
    assert len(set(versions)) == len(versions), "each version was made by one of them"
    load.assert_whole(broker.url, "t")
    verified = run_tidelog(["bucket", "verify", "--deep", "--store", f"file:{tmp_path / 'data'}"])
    assert verified.returncode == 0, verified.stdout.decode() + verified.stderr.decode()
    assert all("skipped" in each.told() for each in compactors)


def test_once_ends_when_nothing_is_due(broker: BrokerProcess, tmp_path: Path) -> None:
    with SteadyLoad(broker.url, "t") as load:
        load.await_acknowledged(1_000)
        load.finish()
    broker.stop()
    store = ("--store", f"file:{tmp_path / 'data'}")
    once = run_tidelog(["compactor", *store, "--once"])
    assert once.returncode == 0, once.stderr.decode()
    again = run_tidelog(["compactor", *store, "--once", "--topic", "t"])
    assert (again.returncode, again.stdout) == (0, b"")
    assert b"0 versions made in 1 rounds" in again.stderr
    assert run_tidelog(["compactor", *store, "--once", "--topic", "nowhere"]).returncode == 2
