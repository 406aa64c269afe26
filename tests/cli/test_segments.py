"""`tidelog topic segments` gives readers of plain Parquet a list that holds each record once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until


@pytest.fixture(scope="module")
def archiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("segments")
    broker = BrokerProcess(folder, {"store": f"file:{folder / 'data'}", "archiver.interval.ms": 20})
    broker.start()
    yield broker
    broker.stop()


def test_its_urls_are_files_that_hold_what_was_produced(archiving: BrokerProcess) -> None:
    lines = [f"line {number}" for number in range(100)]
    run_tidelog(["topic", "produce", "web"], broker=archiving.url, stdin="\n".join(lines).encode())

    def urls() -> list[str]:
        return run_tidelog(["topic", "segments", "web", "--urls"], broker=archiving.url).stdout.decode().splitlines()

    wait_until(lambda: bool(urls()), 20.0, lambda: str(urls()))
    tables = [pq.read_table(Path(url.removeprefix("file://"))) for url in urls()]
    assert [value.decode() for table in tables for value in table["value"].to_pylist()] == lines
    listed = json.loads(run_tidelog(["topic", "segments", "web", "-p", "0", "--json"], broker=archiving.url).stdout)
    assert sum(segment["records"] for log in listed for segment in log["segments"]) == 100
    table = run_tidelog(["topic", "segments", "web"], broker=archiving.url).stdout
    assert table.startswith(b"PARTITION  FIRST  LAST  RECORDS")


def test_a_topic_that_is_not_there_is_reported(archiving: BrokerProcess) -> None:
    ended = run_tidelog(["topic", "segments", "nothing"], broker=archiving.url)
    assert (ended.returncode, ended.stdout) == (4, b"")
