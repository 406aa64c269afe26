"""The answer of Fetch (1), versions 4 to 12. Its records are buffers that are not copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.protocol.api import Buffer
from tidelog.services.kafka.protocol.api_table import API_TABLE, FETCH
from tidelog.services.kafka.protocol.wire_writer import WireWriter

NO_OFFSET = -1
NO_SESSION = 0
_NULL = -1
_READ = (ErrorCode.none, ErrorCode.offset_out_of_range)
"""The outcomes of a partition in which the log was looked at. In the others, Kafka lists no aborted transactions."""
_LOG_START_SINCE, _SESSION_SINCE, _REPLICA_SINCE = 5, 7, 11


@dataclass(frozen=True, slots=True)
class KafkaPart:
    """The answer for a partition. `records`: record batches, one after the other. Without transactions the last stable
    offset is the high watermark."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.none
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: Sequence[Buffer] = ()


def write_fetched(
    version: int, parts: Sequence[KafkaPart], error: ErrorCode = ErrorCode.none, *, lists_aborted: bool = True
) -> Sequence[Buffer]:
    """The answer, with parts in the order of the request. `error`: of the whole request. `lists_aborted`: the client
    reads committed records only, so it gets the aborted transactions: none."""
    writer = WireWriter(is_flexible=API_TABLE[FETCH].is_flexible(version))
    writer.numbers("i", 0)  # not throttled
    if version >= _SESSION_SINCE:
        writer.numbers("hi", error, NO_SESSION)
    topics = [(topic, list(of_topic)) for topic, of_topic in groupby(parts, lambda part: part.topic)]
    writer.array(len(topics))
    for topic, of_topic in topics:
        writer.string(topic)
        writer.array(len(of_topic))
        for part in of_topic:
            _write_part(writer, version, part, lists_aborted)
        writer.no_tags()
    writer.no_tags()
    return writer.buffers()


def _write_part(writer: WireWriter, version: int, part: KafkaPart, lists_aborted: bool) -> None:
    writer.numbers("ihqq", part.partition, part.error, part.high_watermark, part.high_watermark)
    if version >= _LOG_START_SINCE:
        writer.numbers("q", part.log_start_offset)
    writer.array(0 if lists_aborted or part.error not in _READ else _NULL)  # aborted transactions
    if version >= _REPLICA_SINCE:
        writer.numbers("i", -1)  # no preferred replica
    writer.data(part.records)
    writer.no_tags()
