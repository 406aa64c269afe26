"""Records as JSON: the answers to ``GET …/records`` and ``POST …/records``, and one event or line of a stream.

A key, value or header value is a string if its bytes are valid UTF-8, ``{"base64": "…"}`` if they are not, and null if
there is none.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.wire.counts import Count


class Base64(msgspec.Struct):
    """Bytes as base64 (RFC 4648, section 4)."""

    base64: Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]


JsonPayload: TypeAlias = str | Base64 | None


class JsonHeader(msgspec.Struct):
    """A header of a record."""

    key: str
    value: JsonPayload


class JsonRecord(msgspec.Struct, gc=False):
    """A record. `timestamp` in ms since 1970 UTC; `partition` is there only if the answer holds several."""

    offset: Count
    timestamp: int
    key: JsonPayload
    value: JsonPayload
    headers: list[JsonHeader]
    partition: Count | UnsetType = UNSET


class FetchAnswer(msgspec.Struct, frozen=True):
    """Records of one partition. Reading continues at `next_offset`."""

    topic: str
    partition: Count
    records: tuple[JsonRecord, ...]
    next_offset: Count
    high_watermark: Count
    log_start_offset: Count


class AppendedRecords(msgspec.Struct, frozen=True):
    """Where the records of one partition went. `base_offset` is None for ``acks=0``; `timestamp` in ms since 1970 UTC;
    `duplicate` is there, and True, only if the log held them already."""

    partition: Count
    base_offset: Count | None
    count: Count
    timestamp: int
    duplicate: bool | UnsetType = UNSET


class ProduceAnswer(msgspec.Struct, frozen=True):
    """`partitions` holds one element for each partition that got records, in order."""

    topic: str
    partitions: tuple[AppendedRecords, ...]
