"""What a kept bucket holds, and how a broker's records are compared with it.

Beside ``level-1.tar.gz`` lies ``level-1.json``: an `Expected`. It has a digest of every record, so that a test names
the offset of a record that is read differently.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from tests.anybody import ANYBODY
from tests.broker.set_clock import SetClock

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.bucket.attest import TopicHead
from tidelog.storage.errors import RecordsLost

FOLDER = Path(__file__).parent
LEVELS = sorted(int(path.name.removesuffix(".tar.gz").removeprefix("level-")) for path in FOLDER.glob("level-*.tar.gz"))
ALL = FetchLimits(1_000_000, 1 << 30)
DIGEST_DIGITS = 12


class ExpectedLog(msgspec.Struct, frozen=True):
    """A partition: its ends, the recorded losses ``[first, next)``, and the digest of each record by its offset."""

    log_start_offset: int
    cold_end: int
    high_watermark: int
    losses: tuple[tuple[int, int], ...]
    records: Mapping[int, str]


class ExpectedTopic(msgspec.Struct, frozen=True):
    name: str
    topic_id: str
    configs: Mapping[str, str]
    partitions: tuple[ExpectedLog, ...]


class ExpectedOffset(msgspec.Struct, frozen=True):
    """A committed offset of a group."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class ExpectedBatch(msgspec.Struct, frozen=True):
    """The last batch of an idempotent producer: sent again, it is a duplicate at `base_offset`."""

    topic: str
    partition: int
    producer_id: str
    producer_epoch: int
    first_sequence: int
    records: int
    base_offset: int


class Expected(msgspec.Struct, frozen=True):
    """`written_at_ms`: the time on the writer's clock at its end. `formats`: the version of each format. `heads`: an
    attestation."""

    feature_level: int
    written_at_ms: int
    formats: Mapping[str, int]
    topics: tuple[ExpectedTopic, ...]
    offsets: tuple[ExpectedOffset, ...]
    batches: tuple[ExpectedBatch, ...]
    heads: tuple[TopicHead, ...]


def expected_of(level: int) -> Expected:
    """What the kept bucket of a feature level holds."""
    return msgspec.json.decode((FOLDER / f"level-{level}.json").read_bytes(), type=Expected, strict=False)


def unpacked(level: int, folder: Path) -> Path:
    """A fresh copy of the kept bucket of a feature level."""
    with tarfile.open(FOLDER / f"level-{level}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def clock_after(expected: Expected) -> SetClock:
    """A clock that goes on where the writer's ended, so that age deletes nothing."""
    clock = SetClock()
    clock.wall_ahead_ms = expected.written_at_ms - clock.now_ms()
    return clock


class Row(msgspec.Struct, frozen=True):
    """One record. `timestamp` in ms since 1970 UTC."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()[:DIGEST_DIGITS]


def digests_of(batch: pa.RecordBatch) -> dict[int, str]:
    """The digest of each record, by its offset."""
    offsets, keys, values = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        None if named is None else [(each["key"], each["value"]) for each in named]
        for named in batch.column("headers").to_pylist()
    ]
    rows = map(Row, times, keys, values, headers)
    return {offset: row.digest for offset, row in zip(offsets, rows, strict=True)}


async def read_log(
    broker: LocalBroker, topic: str, partition: int, begin: int, end: int
) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """The digests of all records from `begin` up to `end` by offset, and the losses between them."""
    records: dict[int, str] = {}
    losses: list[tuple[int, int]] = []
    offset = begin
    while offset < end:
        try:
            fetched = await broker.fetch(ANYBODY, topic, partition, offset, ALL)
        except RecordsLost as lost:
            losses.append((lost.first_offset, lost.next_offset))
            offset = lost.next_offset
            continue
        for batch in fetched.batches:
            records |= digests_of(batch)
        assert fetched.next_offset > offset, f"{topic}-{partition}: nothing is read from {offset} on"
        offset = fetched.next_offset
    return {offset: found for offset, found in records.items() if offset < end}, losses
