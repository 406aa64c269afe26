"""Sources: what they send, and the expected results they keep."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from demo.agreement import Fingerprint
from demo.source import FILE_BLOCK_BYTES, EventSource, FileSource, Source, SourceBatch

from tidelog.storage.partitioner import partitions_of

PARTITIONS = 3


def all_values(batches: list[SourceBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.values.to_pylist()]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def events() -> tuple[Source, list[SourceBatch]]:
    source = EventSource(6000, seed=3, partitions=PARTITIONS)
    return source, list(source.batches())


def test_events_are_fingerprinted_where_their_keys_put_them(events: tuple[Source, list[SourceBatch]]) -> None:
    source, batches = events
    expected = [Fingerprint() for _ in range(PARTITIONS)]
    for batch in batches:
        assert batch.keys is not None
        homes = partitions_of(pa.chunked_array([batch.keys]), PARTITIONS)
        for row, home in enumerate(homes):
            expected[home].update(batch.keys.slice(row, 1), batch.values.slice(row, 1))
    assert [one.hexdigest() for one in source.fingerprints()] == [one.hexdigest() for one in expected]


def test_the_expected_answers_are_those_of_the_json(events: tuple[Source, list[SourceBatch]]) -> None:
    source, batches = events
    requests: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    duration: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    purchases: Counter[str] = Counter()
    for event in map(json.loads, all_values(batches)):
        requests[event["service"]] += 1
        errors[event["service"]] += event["request"]["status"] >= 500
        duration[event["service"]] += event["request"]["duration_us"]
        purchases[event["user"]["country"]] += event["amount_cents"] > 0
        cents[event["user"]["country"]] += event["amount_cents"]
    by_service, by_country = source.queries()
    assert list(by_service.expected) == [
        (name, requests[name], errors[name], duration[name]) for name in sorted(requests)
    ]
    assert list(by_country.expected) == [(name, purchases[name], cents[name]) for name in sorted(purchases)]


@pytest.mark.parametrize("name", ["lines.log", "lines.log.gz"])
def test_a_file_gives_its_lines_byte_for_byte(tmp_path: Path, name: str) -> None:
    lines = [b"first line", b"", b"\xff\xfe not text", b"with return\r", b"last without newline"]
    source = FileSource(write(tmp_path / name, b"\n".join(lines)), PARTITIONS)
    assert all_values(list(source.batches())) == lines


def test_a_newline_at_the_end_begins_no_line(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "f", b"a\nb\n"), PARTITIONS)
    assert all_values(list(source.batches())) == [b"a", b"b"]


def test_a_line_longer_than_a_block_stays_whole(tmp_path: Path) -> None:
    lines = [b"x" * (2 * FILE_BLOCK_BYTES + 5), b"short"]
    source = FileSource(write(tmp_path / "f", b"\n".join(lines)), PARTITIONS)
    assert all_values(list(source.batches())) == lines


def test_blocks_of_lines_go_to_the_partitions_in_turn(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "f", b"0123456789\n" * 30_000), PARTITIONS)
    batches = list(source.batches())
    assert [batch.partition for batch in batches] == [turn % PARTITIONS for turn in range(len(batches))]
    assert sum(one.records for one in source.fingerprints()) == 30_000


def test_first_words_are_counted_in_lines_of_text_alone(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "f", b"GET a\nPUT b\nGET c\n\xff x\n\n"), PARTITIONS)
    list(source.batches())
    _, words = source.queries()
    assert list(words.expected) == [("GET", 2), ("", 1), ("PUT", 1)]
