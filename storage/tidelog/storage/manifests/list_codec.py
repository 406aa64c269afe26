"""The stored form of a topic's list: its segments as columns, and the states of its partitions.

    manifests/0003/lists/<topic_id>-<id>.json      JSON with a checksum (`json_envelope`)

Columns, because a hundred thousand segments are read in some hundred milliseconds and never become objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import SEGMENT_LIST
from tidelog.storage.layout import TopicPartition, shard_segment_id, shard_segment_key
from tidelog.storage.manifests.json_envelope import Natural, seal, unseal
from tidelog.storage.manifests.segment_columns import OF_SEGMENTS, OF_SPANS, SegmentColumns
from tidelog.storage.manifests.stored_values import StoredState, state_of, stored_state
from tidelog.storage.manifests.topic_state import ListRef, TopicBase


class _Segments(msgspec.Struct):
    ids: list[str]
    sha256: list[str]
    run: list[Natural]
    level: list[Natural]
    size_bytes: list[Natural]
    min_timestamp_ms: list[int]
    max_timestamp_ms: list[int]
    archived_at_ms: list[Natural]
    span_ends: list[Natural]
    partition: list[Natural]
    base_offset: list[Natural]
    last_offset: list[Natural]
    records: list[Natural]
    raw_bytes: list[Natural]


class _List(msgspec.Struct):
    topic: str
    topic_id: str
    shard: Natural
    segments: _Segments
    partitions: dict[int, StoredState]


_decoder = msgspec.json.Decoder(_List)


def encode_list(key: str, topic: str, topic_id: str, shard: int, base: TopicBase) -> tuple[ListRef, bytes]:
    """`base` as the object `key`. Takes a second for some hundred thousand segments: on an event loop, call it in a
    thread."""
    columns = base.columns
    numbers = {name: getattr(columns, name).tolist() for name in (*OF_SEGMENTS, *OF_SPANS)}
    segments = _Segments([shard_segment_id(name) for name in columns.keys], list(columns.sha256), **numbers)
    states = {number: stored_state(state) for number, state in sorted(base.partitions.items())}
    body = seal(SEGMENT_LIST, msgspec.json.encode(_List(topic, topic_id, shard, segments, states)))
    return ListRef(key, hashlib.sha256(body).hexdigest(), len(body), len(columns)), body


def decode_list(stored: ListRef, topic: str, topic_id: str, shard: int, data: bytes) -> TopicBase:
    """The content of the list that a version names. Raises `Corrupt` if `data` is another object or damaged."""
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        raise Corrupt(stored.key, "is not the list that its manifest names: another sha256")
    try:
        found = _decoder.decode(unseal(stored.key, data, SEGMENT_LIST))
    except msgspec.DecodeError as error:
        raise Corrupt(stored.key, f"is no list of segments: {error}") from error
    if (found.topic, found.topic_id, found.shard) != (topic, topic_id, shard):
        raise Corrupt(stored.key, f"is the list of topic {found.topic} in shard {found.shard}")
    columns = _columns(found)
    if fault := _fault(columns, stored.segments):
        raise Corrupt(stored.key, fault)
    places = {number: TopicPartition(topic_id, number) for number in found.partitions}
    return TopicBase(columns, {number: state_of(state, places[number]) for number, state in found.partitions.items()})


def cold_ends_in(key: str, data: bytes) -> Mapping[int, int]:
    """The cold end of each partition in a list that no version names. Raises `Corrupt`."""
    try:
        found = _decoder.decode(unseal(key, data, SEGMENT_LIST))
    except msgspec.DecodeError as error:
        raise Corrupt(key, f"is no list of segments: {error}") from error
    return {number: state.cold_end for number, state in found.partitions.items()}


def _columns(found: _List) -> SegmentColumns:
    stored = found.segments
    numbers = {name: np.array(getattr(stored, name), np.int64) for name in (*OF_SEGMENTS, *OF_SPANS)}
    keys = [shard_segment_key(found.topic, found.topic_id, found.shard, each) for each in stored.ids]
    return SegmentColumns(keys=keys, sha256=stored.sha256, **numbers)


def _fault(columns: SegmentColumns, segments: int) -> str | None:
    """Why these columns cannot be a list of `segments`; None if they can."""
    if len(columns.keys) != segments:
        return f"has {len(columns.keys)} segments, its manifest says {segments}"
    if any(len(column) != segments for column in (columns.sha256, *_named(columns, OF_SEGMENTS))):
        return "has columns of different lengths"
    spans = len(columns.partition)
    if any(len(column) != spans for column in _named(columns, OF_SPANS)):
        return "has columns of spans of different lengths"
    ends = columns.span_ends
    if (int(ends[-1]) if segments else 0) != spans or bool(np.any(np.diff(ends, prepend=0) < 1)):
        return "has segments without spans, or spans without a segment"
    return None


def _named(columns: SegmentColumns, names: Sequence[str]) -> list[Sequence[object]]:
    return [getattr(columns, name) for name in names]
