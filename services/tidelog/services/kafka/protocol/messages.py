"""Requests and answers of all versions, as objects of `kio`'s classes, which are generated from Kafka's schemas.

kio has a class for each version of each message. An API works with one version, usually the highest that it serves:
`decode` converts a request to it, and `encode` converts the answer to the version of the call. Fields match by name. A
field that one version has and the other does not has its default.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.request_reading import (
    empty_value,
    is_nullable,
    nested_class,
    read_request,
    zero_value,
)

_CODED_FIELDS: dict[type[Any], Sequence[tuple[str, bool]]] = {}
"""One for each class of answers that was sent."""
NO_TIME = timedelta(0)
"""`throttle_time` of answers: Tidelog does not throttle."""
_Conversion = Callable[[Any], Any]
_CONVERSIONS: dict[tuple[type[Any], type[Any]], _Conversion] = {}
"""Those that were needed so far: at most one for each message and version."""


def decode(call: Call, wanted: type[Any]) -> Any:
    """The request of `call` as a `wanted`, a class of kio. Raises `Malformed`."""
    schema = load_request_schema(call.api_key, call.version)
    return _conversion(schema, wanted)(read_request(schema, call.body))


def encode(call: Call, answer: Any) -> Answer:
    """`answer`, an object of a class of kio, in the version of `call`. Notes its error codes."""
    call.count_errors(_error_codes(answer))
    return encode_as(call.api_key, call.version, answer)


def encode_as(api_key: int, version: int, answer: Any) -> Answer:
    """`answer` in `version`."""
    schema = load_response_schema(api_key, version)
    written = io.BytesIO()
    entity_writer(schema)(written, _conversion(type(answer), schema)(answer))
    return (written.getbuffer(),)


def _error_codes(entity: Any) -> Iterator[ErrorCode]:
    """Every error code in `entity`."""
    for name, nested in _coded_fields(type(entity)):
        value = getattr(entity, name)
        if not nested:
            yield value
        elif value is not None:
            for each in value if isinstance(value, tuple) else (value,):
                yield from _error_codes(each)


def _coded_fields(schema: type[Any]) -> Sequence[tuple[str, bool]]:
    """The fields of `schema` that are error codes, and those whose messages have some (True)."""
    if schema not in _CODED_FIELDS:
        nested = [(each.name, nested_class(each.type), each.metadata.get("kafka_type")) for each in fields(schema)]
        codes = [(name, False) for name, message, kind in nested if message is None and kind == "error_code"]
        holders = [(name, True) for name, message, _ in nested if message is not None and _coded_fields(message)]
        _CODED_FIELDS[schema] = (*codes, *holders)
    return _CODED_FIELDS[schema]


def _conversion(source: type[Any], target: type[Any]) -> _Conversion:
    """Converts an object of `source` to one of `target`, a class of another version of the same message."""
    if source is target:
        return _same
    if (source, target) not in _CONVERSIONS:
        _CONVERSIONS[source, target] = _built(source, target)
    return _CONVERSIONS[source, target]


def _built(source: type[Any], target: type[Any]) -> _Conversion:
    have = {each.name for each in fields(source)}
    kept = tuple((f.name, *_kept(f)) for f in fields(target) if f.name in have)
    added = {f.name: empty_value(f) for f in fields(target) if f.name not in have}

    def convert(entity: Any) -> Any:
        values = {name: _converted(getattr(entity, name), nested, default) for name, nested, default in kept}
        return target(**values, **added)

    return convert


def _converted(value: Any, nested: type[Any] | None, default: Any) -> Any:
    """`value` of a field, for a version where its messages are of class `nested`; `default`: what it is there for
    null."""
    if value is None:
        return default
    if nested is None:
        return value
    if isinstance(value, tuple):
        return tuple(_conversion(type(each), nested)(each) for each in value)
    return _conversion(type(value), nested)(value)


def _same(entity: Any) -> Any:
    return entity


def _kept(field: Field[Any]) -> tuple[type[Any] | None, Any]:
    return nested_class(field.type), None if is_nullable(field) else zero_value(field)
