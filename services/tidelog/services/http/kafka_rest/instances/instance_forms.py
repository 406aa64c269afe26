"""The bodies of the calls on consumer instances. Numbers may be written as text, as older clients do."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from tidelog.services.http.bodies.timestamps import parse_iso_ms
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.services.http.kafka_rest.instances.instance_state import InstanceConfig
from tidelog.services.http.kafka_rest.rest_answer import OFFSET_MAX, PARTITION_MAX
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import Format, not_yet
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body

T = TypeVar("T")
LISTED_MAX = 10_000
"""Topics or partitions in one body."""
NAME_CHARACTERS_MAX = 200
TIMEOUT_MS_MAX = 3_600_000
_RESETS = ("earliest", "latest", "none")

PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX - 1)]


class InstanceForm(msgspec.Struct, forbid_unknown_fields=True):
    """A new consumer instance."""

    name: str | None = None
    id: str | None = None
    format: str | None = None
    reset: str | None = msgspec.field(default=None, name="auto.offset.reset")
    auto_commit: bool | None = msgspec.field(default=None, name="auto.commit.enable")
    fetch_min_bytes: int | None = msgspec.field(default=None, name="fetch.min.bytes")
    request_timeout_ms: int | None = msgspec.field(default=None, name="consumer.request.timeout.ms")


class SubscriptionForm(msgspec.Struct, forbid_unknown_fields=True):
    """`topics` or `topic_pattern`."""

    topics: Annotated[tuple[str, ...], msgspec.Meta(max_length=LISTED_MAX)] | None = None
    topic_pattern: str | None = None


class PartitionForm(msgspec.Struct, forbid_unknown_fields=True):
    """A partition."""

    topic: str
    partition: PartitionNumber


class PartitionsForm(msgspec.Struct, forbid_unknown_fields=True):
    """Partitions."""

    partitions: Annotated[tuple[PartitionForm, ...], msgspec.Meta(max_length=LISTED_MAX)]


class OffsetForm(PartitionForm, forbid_unknown_fields=True):
    """An offset of a partition. In a commit: that of the last record that is done."""

    offset: Offset
    metadata: str | None = None


class TimestampForm(PartitionForm, forbid_unknown_fields=True):
    """A time in a partition: ms since 1970, or ISO 8601."""

    timestamp: int | str


class OffsetsForm(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets to commit; none: those that were read."""

    offsets: Annotated[tuple[OffsetForm, ...], msgspec.Meta(max_length=LISTED_MAX)] | None = None


class PositionsForm(msgspec.Struct, forbid_unknown_fields=True):
    """Where to continue reading."""

    offsets: Annotated[tuple[OffsetForm, ...], msgspec.Meta(max_length=LISTED_MAX)] = ()
    timestamps: Annotated[tuple[TimestampForm, ...], msgspec.Meta(max_length=LISTED_MAX)] = ()


_INSTANCE = msgspec.json.Decoder(InstanceForm, strict=False)
SUBSCRIPTION = msgspec.json.Decoder(SubscriptionForm)
PARTITIONS = msgspec.json.Decoder(PartitionsForm, strict=False)
OFFSETS = msgspec.json.Decoder(OffsetsForm, strict=False)
POSITIONS = msgspec.json.Decoder(PositionsForm, strict=False)


def parsed_or(decoder: msgspec.json.Decoder[T], body: Body, empty: T) -> T:
    """`body`, or `empty` if there is none. Raises like `parse_typed`."""
    return parse_typed(decoder, body) if bytes(body).strip() else empty


def new_instance(body: Body) -> tuple[str | None, InstanceConfig]:
    """The name and the config of a new instance. Raises `RestError` (42204), `Unreadable`."""
    try:
        form = parsed_or(_INSTANCE, body, InstanceForm())
    except Invalid as error:
        raise _wrong(str(error)) if type(error) is Invalid else error from None
    name = form.name if form.name is not None else form.id
    if name is not None and not _is_name(name):
        raise _wrong(f"name has 1 to {NAME_CHARACTERS_MAX} characters, and no slash")
    default = InstanceConfig()
    config = InstanceConfig(
        _format(form.format),
        default.reset if form.reset is None else form.reset,
        default.auto_commit if form.auto_commit is None else form.auto_commit,
        default.fetch_min_bytes if form.fetch_min_bytes is None else form.fetch_min_bytes,
        default.request_timeout_ms if form.request_timeout_ms is None else form.request_timeout_ms,
    )
    _check(config)
    return name, config


def timestamp_ms(timestamp: int | str) -> int:
    """Raises `Invalid`."""
    if isinstance(timestamp, int):
        return timestamp
    try:
        return int(timestamp) if timestamp.isascii() and timestamp.isdecimal() else parse_iso_ms(timestamp)
    except ValueError as error:
        raise Invalid(f"a timestamp is ms since 1970 or ISO 8601 with a zone: {error}", field="timestamp") from None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARACTERS_MAX and "/" not in name and name.isprintable()


def _format(name: str | None) -> Format:
    try:
        found = Format("binary" if name is None else name.lower())
    except ValueError:
        raise _wrong(f"format is json or binary, not {str(name)[:80]!r}") from None
    if found.has_schema:
        raise _wrong(not_yet(found))
    return found


def _check(config: InstanceConfig) -> None:
    if config.reset not in _RESETS:
        raise _wrong(f"auto.offset.reset is earliest, latest or none, not {config.reset[:80]!r}")
    if not -1 <= config.fetch_min_bytes <= 10_000_000:
        raise _wrong("fetch.min.bytes is a number from -1 to 10000000")
    if not 0 <= config.request_timeout_ms <= TIMEOUT_MS_MAX:
        raise _wrong(f"consumer.request.timeout.ms is a number from 0 to {TIMEOUT_MS_MAX}")


def _wrong(reason: str) -> RestError:
    return RestError(Code.CONSUMER_CONFIG, f"Invalid consumer config: {reason}")
