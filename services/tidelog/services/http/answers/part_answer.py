"""Answers a read of many partitions: as a JSON document, JSON lines, an Arrow stream, or an Arrow stream with stored
row groups behind it (`tidelog.wire.polls`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import FetchedPart
from tidelog.services.http.answers.arrow_answer import ARROW_CODECS, ArrowAnswer, parts_answer, parts_stream
from tidelog.services.http.answers.record_json import ENCODER, JsonText, topic_records
from tidelog.services.http.answers.text_answer import text_answer
from tidelog.services.http.media import Media, answer_codec
from tidelog.storage.parquet.row_group_extract import ExtractedGroups, extracted_file
from tidelog.storage.part_records import PartRecords, placed
from tidelog.storage.records import STORED_SCHEMA
from tidelog.wire.errors import problem_of
from tidelog.wire.polls import PartsAnswer, PartState, PollAnswer, StoredPart

PART_MEDIA = (Media.JSON, Media.NDJSON, Media.ARROW)
FETCH_PART_MEDIA = (*PART_MEDIA, Media.STORED)


class PartDocument:
    """`state` with its records."""

    between = b","
    tail = b"]}"

    def __init__(self, state: bytes, *, base64: bool = False) -> None:
        self.head = state[:-1] + b',"records":['
        self._base64 = base64

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return ENCODER.encode(list(topic_records(group, base64=self._base64)))[1:-1]


class PartLines:
    """One record per line, then `state`."""

    head = between = b""

    def __init__(self, state: bytes, *, base64: bool = False) -> None:
        self.tail = state + b"\n"
        self._base64 = base64

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return ENCODER.encode_lines(topic_records(group, base64=self._base64))


async def part_answer(
    request: Request, parts: Sequence[FetchedPart], answer: PartsAnswer | PollAnswer, media: Media, *, base64: bool
) -> Response:
    """The answer with the records of `parts`; `answer` is the rest of it."""
    batches = placed([_records_of(part) for part in parts if part.fetched])
    if isinstance(answer, PartsAnswer) and (stored := _stored_of(parts)):
        return await _stored_answer(batches, stored, answer, answer_codec(request, ARROW_CODECS))
    state = ENCODER.encode(answer)
    if media in (Media.ARROW, Media.STORED):
        return await parts_answer(batches, state, Media.ARROW.value, answer_codec(request, ARROW_CODECS))
    lines = media is Media.NDJSON
    text: JsonText = PartLines(state, base64=base64) if lines else PartDocument(state, base64=base64)
    return await text_answer(batches, text, {}, media.value)


def part_state(answer: FetchedPart) -> PartState:
    """How far the partition was read, or why not."""
    part, fetched = answer.part, answer.fetched
    return PartState(
        part.topic,
        part.partition,
        answer.next_offset,
        fetched.log_start_offset if fetched else None,
        fetched.high_watermark if fetched else None,
        problem_of(answer.error) if answer.error else None,
        answer.cold,
        fetched.cold_end if fetched else None,
        StoredPart(stored.offset, len(stored.groups)) if fetched and (stored := fetched.stored) else None,
    )


def _stored_of(parts: Sequence[FetchedPart]) -> Sequence[ExtractedGroups]:
    return [part.fetched.stored.extracted() for part in parts if part.fetched and part.fetched.stored]


async def _stored_answer(
    batches: Sequence[pa.RecordBatch], stored: Sequence[ExtractedGroups], answer: PartsAnswer, codec: str | None
) -> Response:
    file = extracted_file(STORED_SCHEMA, stored)
    state = ENCODER.encode(structs.replace(answer, stored_bytes=sum(piece.nbytes for piece in file)))
    stream = await parts_stream(batches, state, codec)
    return ArrowAnswer([*stream, *file], {}, Media.STORED.value)


def _records_of(answer: FetchedPart) -> PartRecords:
    batches = answer.fetched.batches if answer.fetched else ()
    return PartRecords(answer.part.topic, answer.part.partition, batches)
