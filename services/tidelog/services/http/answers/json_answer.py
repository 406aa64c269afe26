"""Fetched records as one JSON document, or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from tidelog.services.broker.api import Fetched
from tidelog.services.http.answers.record_json import ENCODER, RecordJson, records_json


class FetchedJson(msgspec.Struct):
    """The answer to a fetch."""

    topic: str
    partition: int
    records: list[RecordJson]
    next_offset: int
    high_watermark: int
    log_start_offset: int


def encode_json(topic: str, partition: int, fetched: Fetched, *, base64: bool = False) -> bytes:
    """``{"topic", "partition", "records": […], "next_offset", "high_watermark", "log_start_offset"}``"""
    records = list(records_json(fetched.batches, base64=base64))
    answer = FetchedJson(
        topic, partition, records, fetched.next_offset, fetched.high_watermark, fetched.log_start_offset
    )
    return ENCODER.encode(answer)


def encode_ndjson(
    batches: Iterable[pa.RecordBatch], *, base64: bool = False, partition: int | msgspec.UnsetType = msgspec.UNSET
) -> bytes:
    """A record a line."""
    return ENCODER.encode_lines(records_json(batches, base64=base64, partition=partition))
