"""A valid request of every API in every version, and damage to it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from tests.kafka.kio_client import LENGTH_BYTES, framed
from tests.kafka.sent_batches import sent_values

from tidelog.services.kafka.protocol.api_table import API_TABLE
from tidelog.services.kafka.protocol.request_reading import is_array, is_nullable, nested_class

BY_NAME: Mapping[str, Any] = {
    "topic": "events",
    "acks": -1,
    "validate_only": True,
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": (),
    "transactional_id": None,
    "session_timeout": timedelta(seconds=6),
    "rebalance_timeout": timedelta(seconds=1),
    "max_wait": timedelta(0),
    "replica_id": -1,
    "session_id": 0,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "member_epoch": 0,
    "member_id": "",
    "protocol_type": "consumer",
    "resource_type": 2,
    "resource_name": "events",
    "group_instance_id": None,
    "instance_id": None,
}
"""Fields whose zero is no usual value."""
BY_TYPE: Mapping[str, Any] = {
    "string": "billing",
    "bytes": b"\0\0\0\0\0\0",
    "bool": False,
    "timedelta_i32": timedelta(milliseconds=10),
    "timedelta_i64": timedelta(milliseconds=10),
    "uuid": UUID(int=7),
    "float64": 1.0,
}
EXTREMES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\xff\xff", b"\x7f\xff")
"""Lengths and counts that a decoder must not believe."""


def every_request() -> Iterator[tuple[int, int, bytes]]:
    """API key, version, and a frame."""
    for api in API_TABLE.values():
        for version in range(api.lowest, api.highest + 1):
            yield api.key, version, framed(_entity(load_request_schema(api.key, version)), 1)


def damaged(chance: random.Random, frame: bytes) -> bytes:
    """`frame` with some changes after its key and version, and a length that fits, mostly."""
    body = bytearray(frame[LENGTH_BYTES:])
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(8, max(9, len(body)))
        match chance.randrange(5):
            case 0:
                body[at : at + 1] = chance.randbytes(1)
            case 1:
                del body[at : at + chance.randint(1, 8)]
            case 2:
                body[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3:
                extreme = chance.choice(EXTREMES)
                body[at : at + len(extreme)] = extreme
            case _:
                body[at:at] = body[8:at]
    return struct.pack(">i", len(body)) + body


def _entity(schema: Any) -> Any:
    return schema(**{each.name: _value(each) for each in fields(schema)})


def _value(field: Field[Any]) -> Any:
    if field.name in BY_NAME and (BY_NAME[field.name] is not None or is_nullable(field)):
        return BY_NAME[field.name]
    if nested := nested_class(field.type):
        return (_entity(nested),) if is_array(field) else _entity(nested)
    value = _scalar(field.metadata["kafka_type"])
    return (value,) if is_array(field) else value


def _scalar(kind: str) -> Any:
    return sent_values(b"a", b"b") if kind == "records" else BY_TYPE.get(kind, 0)
