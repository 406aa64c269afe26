"""Keys that do not fit in memory: the same rows are superseded for any hash, and nothing stays on the disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage.errors import Unavailable
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.partitioner import partitions_of
from tidelog.storage.upkeep.key_spill import PARTS, Hashes, HashKeys, Keys, KeySpill, newest_rows, spread_hash
from tidelog.storage.upkeep.row_set import RowSet


def all_alike(keys: Keys) -> Hashes:
    """Every key collides with every other."""
    return np.full(len(keys), 0xDEADBEEF, np.uint32)


def by_length(keys: Keys) -> Hashes:
    """Few hashes that differ only in the lowest bits: only the last split separates them."""
    return np.asarray(pa.compute.binary_length(keys)).astype(np.uint32) << np.uint32(2)


def superseded(
    folder: Path, keys: Sequence[bytes], memory_bytes: int, hash_keys: HashKeys = spread_hash, step: int = 3
) -> set[int]:
    """Add keys in pieces, like `compact_keys`, with the rows that are superseded within a piece."""
    spill = KeySpill(folder, memory_bytes, hash_keys)
    found: list[int] = []
    try:
        for begin in range(0, len(keys), step):
            piece = pa.array(keys[begin : begin + step], pa.binary())
            distinct, newest, others = newest_rows(piece, np.arange(begin, begin + len(piece)))
            found += others.tolist()
            spill.add(distinct, newest)
        for rows in spill.superseded():
            found += rows.tolist()
    finally:
        spill.close()
    assert len(found) == len(set(found))
    return set(found)


def expected(keys: Sequence[bytes]) -> set[int]:
    newest = {key: row for row, key in enumerate(keys)}
    return set(range(len(keys))) - set(newest.values())


@settings(deadline=None, max_examples=40)
@given(
    keys=st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"hot", b"x" * 300]), max_size=60),
    memory_bytes=st.sampled_from([1, 100, 2_000, 1 << 20]),
    hash_keys=st.sampled_from([spread_hash, all_alike, by_length]),
    step=st.integers(1, 9),
)
def test_all_but_the_newest_row_of_each_key_are_superseded(
    tmp_path_factory: pytest.TempPathFactory, keys: list[bytes], memory_bytes: int, hash_keys: HashKeys, step: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "spill"
    assert superseded(folder, keys, memory_bytes, hash_keys, step) == expected(keys)


def test_keys_that_fit_in_memory_touch_no_disk(tmp_path: Path) -> None:
    assert superseded(tmp_path / "spill", [b"a", b"b", b"a"], 1 << 20) == {0}
    assert not (tmp_path / "spill").exists()


def test_parts_that_are_too_large_are_parted_again(tmp_path: Path) -> None:
    keys = [b"key-%05d" % (number * 7919 % 3_000) for number in range(6_000)]
    assert superseded(tmp_path, keys, 1_000, step=500) == expected(keys)
    spill = KeySpill(tmp_path, 1_000)
    spill.add(pa.array([b"key-%05d" % number for number in range(6_000)], pa.binary()), np.arange(6_000))
    assert len(list(spill.superseded())) > 10 * PARTS, "each was found in memory by itself"


def test_files_have_no_name(tmp_path: Path) -> None:
    spill = KeySpill(tmp_path, 1)
    spill.add(pa.array([b"a", b"b"], pa.binary()), np.arange(2))
    assert list(tmp_path.iterdir()) == []
    spill.close()
    spill.close()


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib, numpy, pyarrow\n"
        "from tidelog.storage.upkeep.key_spill import KeySpill\n"
        "spill = KeySpill(pathlib.Path(sys.argv[1]), 1)\n"
        "spill.add(pyarrow.array([b'a' * 100_000], pyarrow.binary()), numpy.arange(1))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    spill = KeySpill(tmp_path / "file" / "spill", 1)
    with pytest.raises(Unavailable, match="cannot write spill files under"):
        spill.add(pa.array([b"a"], pa.binary()), np.arange(1))


def test_hashes_spread_the_keys_of_one_partition() -> None:
    """All keys of a partition have the same Kafka hash modulo the number of partitions."""
    keys = pa.array([b"user-%d" % number for number in range(200_000)], pa.binary())
    mine = keys.filter(pa.array(partitions_of(pa.chunked_array([keys]), 64) == 5))
    counts = np.bincount(spread_hash(mine) >> np.uint32(26), minlength=64)
    assert counts.min() > 0.5 * counts.mean()
    assert counts.max() < 1.5 * counts.mean()


def of_records(key: str, records: int) -> TopicSegment:
    return TopicSegment(key, 0, 0, 1, "", 0, 0, 0, (SegmentSpan(0, 0, records - 1, records, 1),))


@given(rows=st.sets(st.integers(0, 99)), first=st.integers(0, 59), count=st.integers(0, 60))
def test_a_row_set_says_which_rows_of_a_segment_are_in_it(rows: set[int], first: int, count: int) -> None:
    segments = [of_records("a", 33), of_records("b", 60), of_records("c", 7)]
    end = min(60, first + count)
    found = RowSet(segments)
    assert [found.first_row(segment) for segment in segments] == [0, 33, 93]
    found.add(np.array(sorted(rows), np.int64))
    found.add(np.array(sorted(rows), np.int64)[:1])
    within = [row - 33 for row in sorted(rows) if 33 + first <= row < 33 + end]
    assert (first + np.flatnonzero(found.mask(segments[1], first, end))).tolist() == within
    assert found.count(segments[1], first, end) == len(within)
    assert found.count(segments[2]) == len([row for row in rows if row >= 93])
