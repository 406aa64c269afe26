"""The options and the outcome of a year, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.year.year_checks import Check
from tests.year.year_reads import Reads
from tests.year.year_source import MIB

from tidelog.client import SegmentDescription
from tidelog.client.costs import ClusterCost
from tidelog.storage.bucket.finding import Summary


@dataclass(frozen=True)
class YearOptions:
    """`gigabytes`: keys and values. `fresh_reads`: the number of single reads of each kind by a broker that has just
    started. `settle_s`: how long upkeep may take to come to rest; it is at rest when nothing has changed for `quiet_s`.
    `tidy`: wait until all garbage is deleted too, which takes a grace or two. `etcd`: the program with which the bucket
    is recovered into a cluster at the end."""

    gigabytes: float = 10.0
    days: int = 365
    seed: int = 1
    faults: int = 4
    reads: int = 100
    fresh_reads: bool = True
    segment_bytes: int = 16 * MIB
    settle_s: float = 600.0
    quiet_s: float = 5.0
    tidy: bool = True
    archiver_interval_ms: int = 2_000
    etcd: Path | None = None


@dataclass(frozen=True)
class Place:
    """The place of the bucket: a folder, or an S3 server with the `environment` to reach it. `folder`: logs,
    reports."""

    folder: Path
    store: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """A fault of the broker, the day of the year, and how long the broker was away."""

    what: str
    day: int
    away_s: float


@dataclass(frozen=True)
class KindOfObject:
    """All objects of one kind."""

    kind: str
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class YearOutcome:
    """`costs`: of every life of the broker; stored bytes are those of the last. `segments` by topic."""

    options: YearOptions
    records: Mapping[str, Sequence[int]]
    raw_bytes: Mapping[str, int]
    produce_s: float
    stopped_early: str
    faults: Sequence[Fault]
    settled_s: float
    at_rest: bool
    costs: ClusterCost
    kinds: Sequence[KindOfObject]
    segments: Mapping[str, Sequence[SegmentDescription]]
    reads: Sequence[Reads]
    replay_s: float
    verified: Summary
    verify_s: float
    checks: Sequence[Check]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)
