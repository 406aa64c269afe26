"""Fetched records as one JSON document, or as JSON lines, written in groups (`record_slices`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from tidelog.services.broker.api.fetch import Fetched
from tidelog.services.http.answers.record_json import ENCODER, records_json


class JsonDocument:
    """``{"topic", "partition", "records": […], "next_offset", "high_watermark", "log_start_offset"}`` of `fetched`."""

    def __init__(self, topic: str, partition: int, fetched: Fetched, *, base64: bool = False) -> None:
        self._base64 = base64
        self._places = {"topic": topic, "partition": partition}
        self._offsets = {
            "next_offset": fetched.next_offset,
            "high_watermark": fetched.high_watermark,
            "log_start_offset": fetched.log_start_offset,
        }
        self.head = ENCODER.encode(self._places)[:-1] + b',"records":['
        self.tail = b"]," + ENCODER.encode(self._offsets)[1:]
        self.between = b","

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return ENCODER.encode(list(records_json(group, base64=self._base64)))[1:-1]


class JsonLines:
    """A record a line."""

    head = tail = between = b""

    def __init__(self, *, base64: bool = False) -> None:
        self._base64 = base64

    def records(self, group: Sequence[pa.RecordBatch]) -> bytes:
        return encode_ndjson(group, base64=self._base64)


JsonText = JsonDocument | JsonLines


def encode_ndjson(
    batches: Iterable[pa.RecordBatch], *, base64: bool = False, partition: int | msgspec.UnsetType = msgspec.UNSET
) -> bytes:
    """A record a line."""
    return ENCODER.encode_lines(records_json(batches, base64=base64, partition=partition))
