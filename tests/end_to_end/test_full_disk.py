"""A disk that really fills up: a small tmpfs. Produces are refused with a clear message. When there is room again,
everything continues, and no acknowledged record is lost."""

import os
import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import RawIOBase
from pathlib import Path
from shutil import which

import pytest
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog
from tests.end_to_end.conftest import StartBroker
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin
from tidelog.storage.errors import Unavailable

DISK_BYTES = 12 << 20
NOISE = random.Random(1).randbytes(500_000).replace(b"\n", b" ")
"""A record that does not compress."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of `DISK_BYTES`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not _mount(disk):
        line = "this user may not mount a tmpfs: run the tests as root, in a container with CAP_SYS_ADMIN"
        if os.environ.get("TIDELOG_REQUIRE_ALL") == "1":
            pytest.fail(line)
        pytest.skip(line)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def _mount(disk: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tidelog-test", str(disk)]
    return which(command[0]) is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def broker(start_broker: StartBroker, small_disk: Path) -> BrokerProcess:
    return start_broker({"store": f"file:{small_disk / 'data'}", "commit.timeout.ms": 2_000})


def test_a_full_disk_refuses_and_continues_once_there_is_room(broker: BrokerProcess, small_disk: Path) -> None:
    with Admin(broker.url, deadline_s=60.0) as admin, ThreadPoolExecutor(1) as beside:
        admin.create_topic("load", partitions=3)
        admin.create_topic("other")
        with SteadyLoad(broker.url, "load") as load:
            load.await_acknowledged(1_000)
            ballast = fill(small_disk)
            created = beside.submit(admin.create_topic, "one-more")
            refused = run_tidelog(["topic", "produce", "other", "--timeout", "1"], broker=broker.url, stdin=NOISE)
            assert refused.returncode == 3
            assert b"the outcome is unknown" in refused.stderr
            assert "the disk is full" in broker.log()
            assert not created.done()

            ballast.unlink()
            load.await_acknowledged(1_000, timeout_s=90.0)
            assert created.result().name == "one-more"
            load.finish()
        assert load.failure is None
        assert load.acknowledged == sum(load.sent)
        load.assert_whole(broker.url, "load")


@pytest.mark.soak
def test_a_topic_is_refused_while_the_disk_stays_full(broker: BrokerProcess, small_disk: Path) -> None:
    """The broker asks the store for half a minute before it gives up."""
    fill(small_disk)
    with Admin(broker.url, deadline_s=60.0) as admin, pytest.raises(Unavailable, match="the disk is full"):
        admin.create_topic("one-more")


def fill(disk: Path) -> Path:
    """Write a file that takes all the space."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        write_without_end(file)
    return ballast


def write_without_end(file: RawIOBase) -> None:
    while True:
        file.write(bytes(4_096))
