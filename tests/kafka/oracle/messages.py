"""Requests of any version from one set of fields, and answers as flat tables of fields.

A scenario names the fields of all versions. A version takes those that it has; the others have their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from tests.kafka.sent_batches import received

from tidelog.services.kafka.protocol.request_reading import empty_value, is_nullable, nested_class, zero_value

_KEYS = (
    "name",
    "topic",
    "topic_id",
    "group_id",
    "key",
    "user",
    "partition_id",
    "api_key",
    "partition_index",
    "index",
    "partition",
    "member_id",
)
"""Fields that identify an element of an array: arrays are compared without their order."""


@dataclass(frozen=True)
class Each:
    """A value that differs between the two brokers, for example an id that each of them chose."""

    kafka: Any
    tidelog: Any


def request(api_key: int, version: int, values: Mapping[str, Any], *, to_kafka: bool) -> Any:
    """The request of `version` for one of the two brokers."""
    return _message(load_request_schema(api_key, version), values, to_kafka=to_kafka)


def _message(schema: type[Any], values: Mapping[str, Any], *, to_kafka: bool) -> Any:
    given = {f.name: _value(f, values[f.name], to_kafka=to_kafka) for f in fields(schema) if f.name in values}
    absent = {f.name: empty_value(f) for f in fields(schema) if f.name not in values}
    return schema(**given, **absent)


def _value(field: Field[Any], value: Any, *, to_kafka: bool) -> Any:
    if isinstance(value, Each):
        value = value.kafka if to_kafka else value.tidelog
    if value is None:
        return None if is_nullable(field) else zero_value(field)
    if str(field.metadata.get("kafka_type", "")).startswith("timedelta"):
        return timedelta(milliseconds=value)
    nested = nested_class(field.type)
    if nested is not None and isinstance(value, dict):
        return _message(nested, value, to_kafka=to_kafka)
    if nested is not None:
        return tuple(_message(nested, each, to_kafka=to_kafka) for each in value)
    if isinstance(value, list):
        return tuple((each.kafka if to_kafka else each.tidelog) if isinstance(each, Each) else each for each in value)
    return value


def flat(answer: Any) -> Mapping[str, Any]:
    """Each field of `answer` by its path, for example ``topics[name=events].partitions[partition_index=0].offset``."""
    return dict(_fields("", answer))


def _fields(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _fields(f"{path}.{field.name}" if path else field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        yield f"{path}.count", len(value)
        for name, element in _named(value):
            yield from _fields(f"{path}[{name}]", element)
    elif path.endswith(".records"):
        yield path, received(value)
    else:
        yield path, value


def _named(elements: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for at, element in enumerate(elements):
        keys = (key for key in _KEYS if is_dataclass(element) and getattr(element, key, None) is not None)
        key = next(keys, None)
        yield (str(at) if key is None else f"{key}={getattr(element, key)}"), element
