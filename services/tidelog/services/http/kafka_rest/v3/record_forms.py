"""A record of ``POST /v3/clusters/{id}/topics/{topic}/records``, and the line that answers it."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.draft_columns import PARTITION, RecordColumns, draft_of
from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.kafka_rest.produce_body import binary_column, one_spelling
from tidelog.services.http.kafka_rest.rest_errors import code_of, message_of
from tidelog.services.http.kafka_rest.rest_media import Format, not_yet
from tidelog.storage.errors import Invalid
from tidelog.storage.records import HEADERS, TIMESTAMP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULL = b"null"
_OK = 200
_SCHEMAS = {"AVRO": Format.AVRO, "JSONSCHEMA": Format.JSONSCHEMA, "PROTOBUF": Format.PROTOBUF}


class PayloadForm(msgspec.Struct, gc=False):
    """A key or a value. `type`: ``BINARY`` (base64), ``JSON`` or ``STRING``."""

    type: str = ""
    data: msgspec.Raw = msgspec.Raw(_NULL)


class HeaderForm(msgspec.Struct, gc=False):
    """A header; its value is base64."""

    name: str
    value: bytes | None = None


class RecordForm(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record."""

    key: PayloadForm | None = None
    value: PayloadForm | None = None
    partition_id: int | None = None
    headers: list[HeaderForm] | None = None
    timestamp: str | None = None
    original_size: int | None = None


class PayloadAnswer(msgspec.Struct, frozen=True):
    """The type and the size of a stored key or value."""

    type: str
    size: int


class RecordAnswer(msgspec.Struct, frozen=True):
    """Where a record is."""

    error_code: int
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: PayloadAnswer | UnsetType = UNSET
    value: PayloadAnswer | UnsetType = UNSET


class RecordRefusal(msgspec.Struct, frozen=True):
    """Why a record was not appended."""

    error_code: int
    message: str


@dataclass(frozen=True)
class Row:
    """A record, read."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int | None
    types: tuple[str, str]
    size_bytes: int


_DECODER = msgspec.json.Decoder(RecordForm)
_TEXT = msgspec.json.Decoder(str)


def row_of(document: bytes) -> Row:
    """Read a record. Raises `Invalid`."""
    form = parse_typed(_DECODER, document, "the record")
    if form.partition_id is not None and not 0 <= form.partition_id < 2**31:
        raise Invalid(f"there is no partition {form.partition_id}", field="partition")
    headers = None if form.headers is None else [(header.name, header.value) for header in form.headers]
    key = _payload(form.key, "key")
    return Row(
        one_spelling(key) if key is not None and form.key is not None and form.key.type == "JSON" else key,
        _payload(form.value, "value"),
        form.partition_id,
        headers,
        None if form.timestamp is None else _time_ms(form.timestamp),
        (form.key.type if form.key else "", form.value.type if form.value else ""),
        len(document),
    )


def draft_of_rows(rows: Sequence[Row]) -> Draft:
    """The draft of `rows`, at least one."""
    partitions = [row.partition for row in rows]
    columns = RecordColumns(
        binary_column([row.value for row in rows]),
        binary_column([row.key for row in rows]),
        pa.array([row.timestamp_ms for row in rows], pa.int64()).cast(TIMESTAMP),
        pa.array([row.headers for row in rows], HEADERS),
        None if partitions.count(None) == len(rows) else pa.array(partitions, PARTITION),
    )
    return draft_of(columns, sum(row.size_bytes for row in rows))


def refusal_of(error: Exception) -> RecordRefusal:
    """The line for a record that failed with `error`."""
    return RecordRefusal(code_of(error), message_of(error))


def answer_of(row: Row, cluster_id: str, topic: str, place: tuple[int, int], timestamp_ms: int) -> RecordAnswer:
    """The line for a record that is at `place`, its partition and offset."""
    time_ms = timestamp_ms if row.timestamp_ms is None else row.timestamp_ms
    time = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    sizes = [
        UNSET if payload is None else PayloadAnswer(kind, len(payload))
        for kind, payload in zip(row.types, (row.key, row.value), strict=True)
    ]
    return RecordAnswer(_OK, cluster_id, topic, *place, time.replace("+00:00", "Z"), *sizes)


def _payload(form: PayloadForm | None, name: str) -> bytes | None:
    if form is None or bytes(form.data) == _NULL:
        return None
    text = bytes(form.data)
    if form.type == "JSON":
        _check_utf8(text, name)
        return text
    if form.type in ("STRING", "BINARY"):
        plain = parse_typed(_TEXT, text, f"{name}.data")
        return plain.encode() if form.type == "STRING" else _from_base64(plain, name)
    schema = _SCHEMAS.get(form.type)
    if schema or not form.type:
        raise Invalid(
            not_yet(schema) if schema else f"{name}.type is missing: it is BINARY, JSON or STRING", field=name
        )
    raise Invalid(f"{name}.type is BINARY, JSON or STRING, not {form.type[:40]!r}", field=name)


def _check_utf8(text: bytes, name: str) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{name}.data is not UTF-8: {error.reason}", field=name) from None


def _from_base64(text: str, name: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise Invalid(f"{name}.data is not base64 (RFC 4648, section 4): {error}", field=name) from None


def _time_ms(text: str) -> int:
    try:
        return parse_iso_ms(text)
    except ValueError as error:
        raise Invalid(f"timestamp is ISO 8601 with a zone: {error}", field="timestamp") from None
