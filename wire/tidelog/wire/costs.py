"""The costs of a broker, as ``/v1/cluster/cost`` counts them: requests and bytes, no prices."""

from __future__ import annotations

import msgspec

from tidelog.storage.stores.counting import RequestCounts
from tidelog.wire.counts import Count


class TopicCostDescription(msgspec.Struct, frozen=True):
    """One topic. Since the broker started: `requests`, records and bytes (of keys and values) produced, bytes of
    segments written from the WAL, by merging and by compaction. Now: what lies in the bucket. Sizes in bytes.

    `debt_bytes` of the `hot_bytes` (the WAL) are in no segment yet, the oldest since `debt_age_ms`. Garbage has left
    its manifest and waits for deletion. Compaction has processed `clean_offsets` and left `clean_records`."""

    topic: str
    requests: RequestCounts
    records_in: Count
    bytes_in: Count
    archived_bytes: Count
    merged_bytes: Count
    compacted_bytes: Count
    partitions: Count
    partitions_known: Count
    hot_bytes: Count
    debt_bytes: Count
    debt_age_ms: Count
    segments: Count
    cold_records: Count
    cold_bytes: Count
    cold_raw_bytes: Count
    garbage_objects: Count
    garbage_bytes: Count
    clean_offsets: Count
    clean_records: Count


class CostDescription(msgspec.Struct, frozen=True):
    """One broker's own numbers. `rest`: requests that belong to no topic. Requests were counted from `since_ms`, when
    the broker started, to `now_ms`; it leads `shards` of the cluster's `shards_total`."""

    broker: str
    store: str
    since_ms: Count
    now_ms: Count
    shards: tuple[Count, ...]
    shards_total: Count
    topics: tuple[TopicCostDescription, ...]
    rest: RequestCounts
