"""Produce (0), versions 3 to 11: the request and its answer. The records of a request are parts of its frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

from kio.schema.errors import ErrorCode
from kio.schema.produce.v11.request import ProduceRequest as Request

from tidelog.services.kafka.protocol.api import Buffer, Call
from tidelog.services.kafka.protocol.api_table import API_TABLE, PRODUCE
from tidelog.services.kafka.protocol.messages import decode
from tidelog.services.kafka.protocol.wire_writer import WireWriter

NOTHING = -1
"""An offset or a time that the answer does not have."""
_LOG_START_SINCE, _MESSAGE_SINCE = 5, 8


@dataclass(frozen=True, slots=True)
class ProducePart:
    """The `records` for one partition: None if there are none."""

    topic: str
    partition: int
    records: memoryview | None


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """`acks`: -1 for all, 0, 1."""

    transactional_id: str | None
    acks: int
    timeout_s: float
    parts: Sequence[ProducePart]


@dataclass(frozen=True, slots=True)
class ProducedPart:
    """The answer for a part. `append_time_ms`: of a topic with LogAppendTime, otherwise `NOTHING`."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    base_offset: int = NOTHING
    append_time_ms: int = NOTHING
    log_start_offset: int = NOTHING


def read_produce(call: Call) -> ProduceRequest:
    """Raises `Malformed`."""
    request: Request = decode(call, Request)
    parts = [
        ProducePart(topic.name, each.index, cast("memoryview | None", each.records))
        for topic in request.topic_data
        for each in topic.partition_data
    ]
    return ProduceRequest(request.transactional_id, request.acks, request.timeout.total_seconds(), parts)


def write_produced(version: int, parts: Sequence[ProducedPart]) -> Sequence[Buffer]:
    """The answer, with parts in the order of the request."""
    writer = WireWriter(is_flexible=API_TABLE[PRODUCE].is_flexible(version))
    topics = [(topic, list(of_topic)) for topic, of_topic in groupby(parts, lambda part: part.topic)]
    writer.array(len(topics))
    for topic, of_topic in topics:
        writer.string(topic)
        writer.array(len(of_topic))
        for part in of_topic:
            _write_part(writer, version, part)
        writer.no_tags()
    writer.numbers("i", 0)  # not throttled
    writer.no_tags()
    return writer.buffers()


def _write_part(writer: WireWriter, version: int, part: ProducedPart) -> None:
    writer.numbers("ihqq", part.partition, part.error, part.base_offset, part.append_time_ms)
    if version >= _LOG_START_SINCE:
        writer.numbers("q", part.log_start_offset)
    if version >= _MESSAGE_SINCE:
        writer.array(0)  # errors of single records
        writer.nullable_string(part.message)
    writer.no_tags()
