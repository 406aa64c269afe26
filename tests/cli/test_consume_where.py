"""`topic consume --where` against a broker: hot and cold records, counts, and what is skipped."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Tidelog
from tests.cli.test_progress import everything_from
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.client import Admin, Consumer, Producer
from tidelog.services.cli.where.parser import parsed
from tidelog.services.cli.where.scan import Scan
from tidelog.services.cli.where.selection import Selection

DAY_MS = 86_400_000
DAYS, EACH = 8, 50


@pytest.fixture(scope="module")
def archiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that archives at once."""
    folder = tmp_path_factory.mktemp("where")
    settings = {"store": f"file:{folder / 'data'}", "shards": 1, "archiver.interval.ms": 20, "archiver.min.bytes": 1}
    process = BrokerProcess(folder, settings)
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def days(archiving: BrokerProcess) -> str:
    """A topic with a cold segment for each of `DAYS` days, in two partitions, and a record that is no JSON."""
    with Admin(archiving.url) as admin:
        admin.create_topic("days", 2, {"retention.ms": -1})
    with Admin(archiving.url) as admin, Producer(archiving.url, "days") as producer:
        for day in range(DAYS):
            values = [json.dumps({"day": day, "n": n}).encode() for n in range(EACH)]
            times = pa.array([1_000_000_000_000 + day * DAY_MS + n for n in range(EACH)], pa.timestamp("ms", "UTC"))
            for partition in (0, 1):
                producer.send_batch(pa.table({"value": values, "timestamp": times}), partition=partition)
            producer.flush()
            wait_until(lambda: all(part.cold_end == part.high_watermark for part in admin.topic("days").partitions), 30)
        producer.send(b"no json", partition=0)
    return "days"


def test_matches_of_hot_and_cold_records_are_printed(archiving: BrokerProcess, days: str) -> None:
    found = run_tidelog(
        ["topic", "consume", days, "-e", "--where", "value.day == 3 and value.n < 2", "-f", "%p %o\\n"],
        broker=archiving.url,
    )
    assert sorted(found.stdout.split(b"\n")[:-1]) == [b"0 150", b"0 151", b"1 150", b"1 151"]
    assert found.stderr == b"tidelog: records that do not match because their value is no JSON: 1\n"
    some = run_tidelog(["topic", "consume", days, "-n", "3", "--where", "value.n == 7"], broker=archiving.url)
    assert len(some.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("where", "matches", "read_max"),
    [
        ("value.n == 0", 2 * DAYS, 2 * DAYS * EACH + 1),
        (f"timestamp >= {1_000_000_000_000 + 6 * DAY_MS}", 2 * 2 * EACH + 1, 2 * 2 * EACH + 1),
        (f"timestamp < {1_000_000_000_000 + DAY_MS} and value.n >= 0", 2 * EACH, 2 * EACH + 1),
        ("partition == 1 and offset < 10", 10, 10),
        ("offset in (5, 6) or offset == 8", 6, 8),
        ("offset < 0", 0, 0),
        ("partition == 9", 0, 0),
    ],
)
def test_only_what_can_match_is_read(
    archiving: BrokerProcess, days: str, where: str, matches: int, read_max: int
) -> None:
    read: list[int] = []
    with Consumer(archiving.url, days) as consumer, Admin(archiving.url) as admin:
        scan = Scan(consumer, admin, Selection(parsed(where)), False, read.append)
        assert scan.planned is not None
        assert scan.planned <= read_max
        planned = scan.planned
        assert sum(batch.records.num_rows for batch in scan.batches()) == matches
        assert sum(read) == planned


def test_a_follower_prints_matches_as_they_come(tidelog: Tidelog, broker: BrokerProcess) -> None:
    tidelog("topic", "create", "live")
    command = ["topic", "consume", "live", "--broker", broker.url, "--where", "value.ok == true", "-n", "1"]
    with ForkedTidelog(command, stdout=subprocess.PIPE) as following:
        time.sleep(0.1)
        tidelog("topic", "produce", "live", stdin=b'{"ok":false}\n{"ok":true}\n')
        assert following.stdout.readline() == b'{"ok":true}\n'
        assert following.wait(30) == 0


def test_progress_shows_on_a_terminal(archiving: BrokerProcess, days: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = ["topic", "consume", days, "-e", "--broker", archiving.url, "--where", "value.n == 0"]
    with (tmp_path / "out").open("wb") as out:
        consuming = ForkedTidelog(command, stdin=subprocess.DEVNULL, stdout=out, stderr=theirs)
    os.close(theirs)
    shown = everything_from(ours)
    assert consuming.wait(60) == 0
    assert b"reading days" in shown
    assert len((tmp_path / "out").read_bytes().splitlines()) == 2 * DAYS


def test_a_mistake_points_to_its_place(tidelog: Tidelog) -> None:
    ended = tidelog("topic", "consume", "any", "--where", "value.status >= five")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.decode() == (
        "tidelog: --where: expected a text, a number, true, false or null: put a text in quotes\n"
        "  value.status >= five\n"
        "                  ^\n"
    )
