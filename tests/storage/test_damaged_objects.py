"""Every bit flip and every cut of an object gives `Corrupt`: no crash, no wrong records. `damage.py` runs in its own
process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.storage.damage import SEGMENT
from tests.storage.record_tables import SHOP, WEB, records_header, spans_of, wal_table

from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal.wal_codec import ParquetWalCodec

ROOT = Path(__file__).parents[2]
WAL_KEY = "wal/0000/00000000000000000000.parquet"


def an_entry() -> bytes:
    spans = spans_of((WEB, 5, 4), (SHOP, 0, 3))
    return bytes(ParquetWalCodec().encode(records_header(spans), wal_table(spans)))


def a_start_entry() -> bytes:
    return bytes(ParquetWalCodec().encode(records_header(()), WAL_SCHEMA.empty_table()))


def a_segment() -> bytes:
    return bytes(SEGMENT.body)


Made = Callable[[], bytes]

OBJECTS = {
    "an entry": (WAL_KEY, an_entry),
    "a START entry": (WAL_KEY, a_start_entry),
    "a segment": (SEGMENT.segment.key, a_segment),
}
objects = pytest.mark.parametrize(("key", "made"), OBJECTS.values(), ids=OBJECTS)
FORGEABLE = ["an entry", "a segment"]  # a START entry has no row group whose checksum could be made to match
forgeable = pytest.mark.parametrize(("key", "made"), [OBJECTS[name] for name in FORGEABLE], ids=FORGEABLE)


def ends_of(path: Path, key: str, kind: str, *, seed: int = 0, count: int = 0) -> dict[str, int]:
    """The outcomes of decoding the damaged objects, counted, in a process that must end normally."""
    command = [sys.executable, "-m", "tests.storage.damage", str(path), key, kind, str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    ends: dict[str, int] = json.loads(done.stdout)
    return ends


@objects
def test_every_flipped_bit_is_noticed(key: str, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "object"
    size = path.write_bytes(made())
    assert ends_of(path, key, "flips") == {"corrupt": 8 * size}


@objects
def test_every_truncation_is_noticed(key: str, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "object"
    size = path.write_bytes(made())
    assert ends_of(path, key, "cuts") == {"corrupt": 2 * size - 1}


@forgeable
def test_a_forged_page_whose_checksums_fit_does_not_crash(key: str, made: Made, tmp_path: Path) -> None:
    """Parquet has its own checksums in each page; no page crashes its reader."""
    path = tmp_path / "object"
    path.write_bytes(made())
    ends = ends_of(path, key, "forged", seed=1, count=3_000)
    assert ends.keys() <= {"corrupt", "same"}
    assert ends["corrupt"] > 2_000


@pytest.mark.soak
@forgeable
def test_damage_for_long(key: str, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "object"
    path.write_bytes(made())
    for seed in range(10 * int(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))):
        assert ends_of(path, key, "bytes", seed=seed, count=20_000).keys() == {"corrupt"}
        assert ends_of(path, key, "forged", seed=seed, count=20_000).keys() <= {"corrupt", "same"}
