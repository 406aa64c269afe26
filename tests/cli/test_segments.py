"""`tidelog topic segments` gives readers of plain Parquet a list that holds each record once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
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

    def archived() -> list[str]:
        tables = [pq.read_table(Path(url.removeprefix("file://"))) for url in urls()]
        return [value.decode() for table in tables for value in table["value"].to_pylist()]

    wait_until(lambda: len(archived()) == len(lines), 20.0, lambda: str(urls()))
    assert archived() == lines
    listed = json.loads(run_tidelog(["topic", "segments", "web", "-p", "0", "--json"], broker=archiving.url).stdout)
    assert sum(span["records"] for segment in listed["segments"] for span in segment["spans"]) == 100
    table = run_tidelog(["topic", "segments", "web"], broker=archiving.url).stdout
    assert table.startswith(b"SHARD  LEVEL  PARTITIONS  RECORDS")
    spans = run_tidelog(["topic", "segments", "web", "--spans"], broker=archiving.url).stdout.decode().splitlines()
    assert spans[0].startswith("PARTITION  FIRST  LAST  RECORDS  LEVEL")
    assert spans[-1].split()[2] == "99"


def test_a_topic_that_is_not_there_is_reported(archiving: BrokerProcess) -> None:
    ended = run_tidelog(["topic", "segments", "nothing"], broker=archiving.url)
    assert (ended.returncode, ended.stdout) == (4, b"")


FINAL_LEVEL = 2
PAGE = Path(__file__).parents[2] / "docs" / "archive.md"


def test_the_queries_of_the_archives_page_run_and_its_list_holds_each_record_once(
    archiving: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"user": f"user-{n % 3}", "path": "/cart" if n % 4 else "/", "ms": n} for n in range(40)]
    run_tidelog(["topic", "create", "shop", "-c", "segment.ms=1s"], broker=archiving.url)

    def urls() -> bytes:
        return run_tidelog(["topic", "segments", "shop", "--urls"], broker=archiving.url).stdout

    def files() -> list[Path]:
        return [Path(url.removeprefix("file://")) for url in urls().decode().split()]

    def is_merged() -> bool:
        listed = run_tidelog(["topic", "segments", "shop", "--json"], broker=archiving.url).stdout
        return {segment["level"] for segment in json.loads(listed)["segments"]} == {FINAL_LEVEL}

    for part in (records[:20], records[20:]):
        before = urls()
        lines = "\n".join(json.dumps(record) for record in part)
        run_tidelog(["topic", "produce", "shop"], broker=archiving.url, stdin=lines.encode())
        wait_until(lambda before=before: urls() != before, 20.0, lambda: "not archived")
    wait_until(is_merged, 30.0, lambda: urls().decode())
    (tmp_path / "web.urls").write_bytes(urls())
    (tmp_path / "tidelog-data").symlink_to(files()[0].parents[3])
    monkeypatch.chdir(tmp_path)
    listing, records_of_cart, paths, glob = (
        statement
        for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for statement in block.replace("topics/web/", "topics/shop/").split(";")
        if statement.strip()
    )
    database = duckdb.connect()

    def rows(query: str) -> list[dict[str, object]]:
        return database.execute(query).to_arrow_table().to_pylist()  # `fetchall` wants pytz for timestamps

    database.execute(listing)
    assert [(row["user"], row["ms"]) for row in rows(records_of_cart)][:2] == [("user-0", 39), ("user-2", 38)]
    assert {row["path"]: row["records"] for row in rows(paths)} == {"/": 10, "/cart": 30}
    assert rows(glob)[0]['max("offset")'] == 39
    assert len(list(files()[0].parent.glob("*.parquet"))) > len(files())
    twice = glob.replace('max("offset")', "count(*) AS records")
    assert int(str(rows(twice)[0]["records"])) > len(records), "the danger that the page names first"
