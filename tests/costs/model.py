"""The formulas of docs/cost.md. Only the tests use them: they say which counts to expect.

Rates are per second, a month has 30 days, GB are 10^9 bytes except where a price list means 2^30.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.costs import GB_BYTES, MONTH_S
from tidelog.client.prices import BILLED_GB_BYTES, PriceTable
from tidelog.services.broker.archive.archive_policy import MANIFEST_PUTS, PATIENCE, PUTS_FREE
from tidelog.services.runtime.wiring import S3_FLUSH_INTERVAL_MS
from tidelog.services.settings.settings import Settings
from tidelog.storage.stores.counting import RequestCounts
from tidelog.storage.upkeep.merge_plan import FAN_IN_MIN
from tidelog.storage.upkeep.rules import UpkeepRules
from tidelog.storage.wal.wal_index import INDEX_EVERY

SENT, RECEIVED = 0.18, 0.18
"""Bytes on the network per byte of keys and values that a Producer sends and a Consumer receives. Both use zstd, the
default."""
SEGMENTS_OF_A_RECORD = 3
"""The archiver writes a record once, and merging twice at most. Each of these segments is replaced or expires."""


@dataclass(frozen=True)
class Workload:
    """A steady load. `raw_bytes`: keys and values per second, spread evenly over `shards`, to `topics` that each get
    records in every pass of the archiver; how many partitions they have does not matter. `stored`: bytes in a segment
    per raw byte. `kept_days`: retention. `readers`: number of consumers that read everything at the end of the log.
    `kafka_wire`: bytes that Kafka's clients send and receive, and that its brokers store, per raw byte."""

    raw_bytes: float
    shards: int
    topics: int = 1
    stored: float = 0.145
    kept_days: float = 30.0
    readers: int = 2
    kafka_wire: float = 0.148


# ---- Tidelog


def wal_entries(load: Workload, settings: Settings, seconds: float) -> float:
    """A busy shard makes one entry each `flush.interval.ms`, or more often if `flush.max.bytes` fill sooner."""
    interval_s = (settings.flush_interval_ms or S3_FLUSH_INTERVAL_MS) / 1_000
    by_bytes = load.raw_bytes / load.shards / settings.flush_max_bytes
    return load.shards * seconds * max(1 / interval_s, by_bytes)


def pass_s(load: Workload, settings: Settings) -> float:
    """Time between two passes of the archiver over a shard. An old log waits until its entries have cost as many PUTs
    as a pass will, unless those are few, and at most ten intervals. A log of `archiver.min.bytes` is archived at
    once."""
    interval_s = settings.archiver_interval_ms / 1_000
    puts = load.topics + MANIFEST_PUTS
    pays_s = puts / (wal_entries(load, settings, 1.0) / load.shards) if puts > PUTS_FREE else 0.0
    by_age_s = min(max(interval_s, pays_s), PATIENCE * interval_s)
    return min(by_age_s, settings.archiver_min_bytes / (load.raw_bytes * load.stored / load.shards))


def passes(load: Workload, settings: Settings, seconds: float) -> float:
    """Passes of the archiver, each over one shard."""
    return load.shards * seconds / pass_s(load, settings)


def wal_requests(load: Workload, settings: Settings, seconds: float) -> RequestCounts:
    """Entries are created, indexed (a PUT for 32 of them), and read once by the archiver. Those of a pass are listed
    and deleted after the grace; deletions are free."""
    entries, runs = wal_entries(load, settings, seconds), passes(load, settings, seconds)
    return RequestCounts(
        puts=entries + entries / INDEX_EVERY, gets=entries, lists=runs, deletes=entries + entries / INDEX_EVERY
    )


def archive_requests(load: Workload, settings: Settings, seconds: float) -> RequestCounts:
    """A pass writes a segment for each topic, and one version of the shard's manifest. A HEAD proves that the version
    before it is still the newest."""
    runs = passes(load, settings, seconds)
    return RequestCounts(puts=(load.topics + MANIFEST_PUTS) * runs, heads=runs)


def merge_requests(load: Workload, settings: Settings, seconds: float) -> RequestCounts:
    """An upper bound. Of every 16 small segments of a topic, or as many as fill `segment.bytes`, each read once, a
    merge makes one, with a version; later it makes one of 16 of those. Deleting the inputs takes one more version. A
    pass that fills a segment is written once more."""
    small = passes(load, settings, seconds) * load.topics
    fill = UpkeepRules().segment_bytes / (load.raw_bytes * seconds * load.stored / small)
    fan_in = max(1.0, min(FAN_IN_MIN, fill))
    steps = small / fan_in * (1 if fill <= FAN_IN_MIN else 1 + 1 / FAN_IN_MIN)
    return RequestCounts(puts=3 * steps, gets=small + 2 * steps, lists=steps, deletes=small + steps)


def requests(load: Workload, settings: Settings, seconds: float = MONTH_S) -> RequestCounts:
    """All requests."""
    parts = (wal_requests, archive_requests, merge_requests)
    return sum((part(load, settings, seconds) for part in parts), RequestCounts())


def stored_bytes(load: Workload) -> float:
    """Stored bytes when retention removes as much as arrives."""
    return load.raw_bytes * load.kept_days * 86_400 * load.stored


def grace_bytes(load: Workload, grace_days: float) -> float:
    """An upper bound of the bytes of replaced segments that wait for ``file.delete.delay.ms``: a record is in three
    segments at most, one after the other."""
    return load.raw_bytes * load.stored * SEGMENTS_OF_A_RECORD * grace_days * 86_400


@dataclass(frozen=True)
class Month:
    """Dollars by purpose."""

    requests: float
    stored: float
    between_zones: float

    @property
    def total(self) -> float:
        return self.requests + self.stored + self.between_zones


def tidelog_month(load: Workload, settings: Settings, prices: PriceTable, network: Network) -> Month:
    """Producers and readers are in another zone than the broker in two of three cases. The way to S3 costs nothing."""
    return Month(
        requests=prices.requests_usd(requests(load, settings)),
        stored=prices.stored_month_usd(stored_bytes(load)),
        between_zones=network.usd(month_bytes(load) * (SENT + RECEIVED * load.readers) * ELSEWHERE),
    )


# ---- Kafka on disks in three zones


@dataclass(frozen=True)
class Network:
    """Price of a GB sent and received between zones."""

    usd_per_gb: float = 0.02

    def usd(self, size_bytes: float) -> float:
        return self.usd_per_gb * size_bytes / GB_BYTES


@dataclass(frozen=True)
class Disks:
    """`used`: the share of the disks that records may fill. The rest is room for a broker's failure and for growth."""

    usd_per_gb_month: float = 0.08
    used: float = 0.6

    def usd(self, size_bytes: float) -> float:
        return self.usd_per_gb_month * size_bytes / BILLED_GB_BYTES / self.used


REPLICAS = 3
ELSEWHERE = 2 / 3
"""How often a partner is in another one of three zones, if nobody chooses."""


def month_bytes(load: Workload) -> float:
    return load.raw_bytes * MONTH_S


def kafka_month(load: Workload, network: Network, disks: Disks) -> Month:
    """Three replicas, one in each zone: every byte is sent to two other zones, and stored three times, as producers
    compressed it. Clients as with Tidelog."""
    sent = month_bytes(load) * load.kafka_wire
    held = load.raw_bytes * load.kept_days * 86_400 * load.kafka_wire
    return Month(
        requests=0.0,
        stored=disks.usd(held * REPLICAS),
        between_zones=network.usd(sent * (REPLICAS - 1) + sent * (1 + load.readers) * ELSEWHERE),
    )
