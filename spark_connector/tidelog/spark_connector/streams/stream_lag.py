"""How far a stream is behind, from its progress events.

    stream_lag(query.lastProgress)          {"web": {0: 0, 1: 1200}}: offsets behind the end of each partition

Spark's Kafka source adds ``maxOffsetsBehindLatest`` and the like to ``metrics`` of its progress. Spark has no place for
metrics of a Python source, but its progress has the end of the batch and the end of the log, so the lag follows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.spark_connector.streams.stream_offsets import BEGINNING, StreamOffsets, parse_stream_offsets
from tidelog.storage.errors import Invalid


def stream_lag(progress: Any) -> dict[str, dict[int, int]]:
    """The offsets between the end of the batch and the end of the log, by topic and partition, over all sources of the
    query that are Tidelog's. `progress`: `StreamingQuery.lastProgress`, or the progress of a listener's event."""
    found: dict[str, dict[int, int]] = {}
    for source in progress["sources"] if isinstance(progress, Mapping) else progress.sources:
        end, latest = (_offsets(_member(source, name)) for name in ("endOffset", "latestOffset"))
        for name, topic in latest.topics.items():
            at = end.topics[name].next_offsets if name in end.topics else {}
            behind = {number: max(0, offset - at.get(number, 0)) for number, offset in topic.next_offsets.items()}
            found.setdefault(name, {}).update(behind)
    return found


def kafka_metrics(lag: Mapping[str, Mapping[int, int]]) -> dict[str, str]:
    """`lag` in the form of the metrics of Spark's Kafka source."""
    behind = [offsets for topic in lag.values() for offsets in topic.values()]
    if not behind:
        return {}
    values = {"min": min(behind), "max": max(behind), "avg": sum(behind) / len(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in values.items()}


def _member(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)


def _offsets(given: Any) -> StreamOffsets:
    """Only offsets of this source have the ids of their topics."""
    try:
        offsets = parse_stream_offsets(json.loads(given) if isinstance(given, str) else given or {})
    except Invalid:
        return BEGINNING
    return offsets if offsets.has_ids else BEGINNING
