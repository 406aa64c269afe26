"""What a broker has cost, as ``/v1/cluster/cost`` counts it: requests and bytes, no prices."""

from __future__ import annotations

import msgspec

from tidelog.storage.stores.counting import RequestCounts


class TopicCostDescription(msgspec.Struct, frozen=True):
    """One topic. Since the broker started: `requests`, records and bytes (of keys and values) produced, bytes of
    segments written from the WAL, by merging and by compaction. Now: what lies in the bucket. Sizes in bytes.

    `debt_bytes` of the `hot_bytes` (the WAL) are in no segment yet, the oldest since `debt_age_ms`. Garbage has left
    its manifest and waits for its deletion. Compaction went over `clean_offsets` and left `clean_records`."""

    topic: str
    requests: RequestCounts
    records_in: int
    bytes_in: int
    archived_bytes: int
    merged_bytes: int
    compacted_bytes: int
    partitions: int
    partitions_known: int
    hot_bytes: int
    debt_bytes: int
    debt_age_ms: int
    segments: int
    cold_records: int
    cold_bytes: int
    cold_raw_bytes: int
    garbage_objects: int
    garbage_bytes: int
    clean_offsets: int
    clean_records: int


class CostDescription(msgspec.Struct, frozen=True):
    """One broker's own numbers. `rest`: requests that belong to no topic. Requests were counted from `since_ms`, when
    the broker started, to `now_ms`; it leads `shards` of the cluster's `shards_total`."""

    broker: str
    store: str
    since_ms: int
    now_ms: int
    shards: tuple[int, ...]
    shards_total: int
    topics: tuple[TopicCostDescription, ...]
    rest: RequestCounts
