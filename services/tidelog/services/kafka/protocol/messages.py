"""Requests and answers of all versions, read and written by `kio`, whose classes are generated from Kafka's schemas.

kio has a class for each version of each message. An API works with one version, usually the highest that it serves:
`decode` converts a request to it, and `encode` converts the answer to the version of the call. Fields match by name. A
field that one version has and the other does not has its default.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, get_args

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from tidelog.services.kafka.protocol.api import Answer, Call, Malformed

NO_TIME = timedelta(0)
"""`throttle_time` of answers: Tidelog does not throttle."""
_DEFAULTS = {"string": "", "bytes": b"", "records": None, "bool": False, "uuid": None, "error_code": ErrorCode.none}
_Conversion = Callable[[Any], Any]
_CONVERSIONS: dict[tuple[type[Any], type[Any]], _Conversion] = {}
"""Those that were needed so far: at most one for each message and version."""


def decode(call: Call, wanted: type[Any]) -> Any:
    """The request of `call` as a `wanted`, a class of kio. Raises `Malformed`."""
    schema = load_request_schema(call.api_key, call.version)
    try:
        request, size = entity_reader(schema)(call.body, 0)
    except (SerialError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise Malformed(f"the request is not a {schema.__name__} of version {call.version}: {error!r}") from error
    if size != len(call.body):
        raise Malformed(f"{len(call.body) - size} bytes follow a {schema.__name__} of version {call.version}")
    return _conversion(schema, wanted)(request)


def encode(call: Call, answer: Any) -> Answer:
    """`answer`, an object of a class of kio, in the version of `call`."""
    return encode_as(call.api_key, call.version, answer)


def encode_as(api_key: int, version: int, answer: Any) -> Answer:
    """`answer` in `version`."""
    schema = load_response_schema(api_key, version)
    written = io.BytesIO()
    entity_writer(schema)(written, _conversion(type(answer), schema)(answer))
    return (written.getbuffer(),)


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
    added = {f.name: _default(f) for f in fields(target) if f.name not in have}

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
    return _nested(field.type), None if _is_nullable(field) else _empty(field)


def _nested(annotation: Any) -> type[Any] | None:
    """The class of messages that `annotation`, for example ``tuple[X, ...] | None``, is about."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return annotation
    return next((found for part in get_args(annotation) if (found := _nested(part))), None)


def _is_nullable(field: Field[Any]) -> bool:
    return NoneType in get_args(field.type)


def _default(field: Field[Any]) -> Any:
    """The value of a field that the other version does not have."""
    if field.default is not MISSING:
        return field.default
    return None if _is_nullable(field) else _empty(field)


def _empty(field: Field[Any]) -> Any:
    if "tuple" in str(field.type):
        return ()
    kind = field.metadata.get("kafka_type", "")
    return NO_TIME if kind.startswith("timedelta") else _DEFAULTS.get(kind, 0)
