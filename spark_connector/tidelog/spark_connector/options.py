"""The options of a read. Names and meaning are those of Spark's Kafka source in batch reads.

    which records     exactly one of subscribe (names, by commas), assign (JSON {"topic": [0, 1]}), subscribePattern
                      (a regular expression that must match the whole topic name)
    from              startingTimestamp (ms), else startingOffsets: earliest (default) or JSON
                      {"topic": {"0": 23, "1": -2}}
    up to             endingTimestamp (ms), else endingOffsets: latest (default) or JSON, exclusive
    how               includeHeaders, failOnDataLoss, startingOffsetsByTimestampStrategy, minPartitions,
                      maxRecordsPerPartition

As in Kafka, -2 is earliest and -1 is latest, and a batch read cannot start at the latest or end at the earliest offset.
Tidelog adds `broker` (its URL) and `store` (the URL under which readers find the bucket, if the broker's URL does not
work for them).

Parsing is pure and asks no broker, so a wrong option fails before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tidelog.storage.errors import Invalid

DEFAULT_BROKER = "http://127.0.0.1:8080"
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1

KNOWN_OPTIONS = (
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "broker",
    "store",
)
_SUBSCRIPTIONS = ("subscribe", "assign", "subscribePattern")

T = TypeVar("T")
_Partition: TypeAlias = Annotated[int, Meta(ge=0, lt=10**9)]
_Offset: TypeAlias = Annotated[int, Meta(ge=EARLIEST_OFFSET, le=2**63 - 1)]


@dataclass(frozen=True)
class TopicNames:
    """All partitions of these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TopicPattern:
    """All partitions of the topics whose whole name matches."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assignment:
    """These (topic, partition) pairs."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class AtEarliest:
    """The log start offset."""


@dataclass(frozen=True)
class AtLatest:
    """The high watermark."""


@dataclass(frozen=True)
class AtTimestamp:
    """The first record at or after `timestamp_ms`. Without one, it is the high watermark, or an error with
    `must_match`."""

    timestamp_ms: int
    must_match: bool = False


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each (topic, partition) read, -2 and -1 as in Kafka."""

    option: str
    offsets: tuple[tuple[str, int, int], ...]


Subscription: TypeAlias = TopicNames | TopicPattern | Assignment
Bound: TypeAlias = AtEarliest | AtLatest | AtTimestamp | AtOffsets


@dataclass(frozen=True)
class ReadOptions:
    """One read. `records_per_task_max` and `tasks_min` are Kafka's maxRecordsPerPartition and minPartitions."""

    subscription: Subscription
    start: Bound
    end: Bound
    include_headers: bool = False
    fail_on_data_loss: bool = True
    tasks_min: int | None = None
    records_per_task_max: int | None = None
    broker: str = DEFAULT_BROKER
    store: str | None = None


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options as the user wrote them, with names in any case, as in Spark. Raises `Invalid` with the option
    in `field`."""
    options = _by_known_name(given)
    return ReadOptions(
        subscription=_subscription(options),
        start=_start(options),
        end=_end(options),
        include_headers=_flag(options, "includeHeaders", default=False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        tasks_min=_positive(options, "minPartitions"),
        records_per_task_max=_positive(options, "maxRecordsPerPartition"),
        broker=_broker(options.get("broker", DEFAULT_BROKER)),
        store=options.get("store") or None,
    )


def _by_known_name(given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in KNOWN_OPTIONS}
    unknown = sorted(name for name in given if name.lower() not in known)
    if unknown:
        hint = (
            " (the broker's address goes into 'broker')" if any("bootstrap" in name.lower() for name in unknown) else ""
        )
        raise Invalid(
            f"unknown option of the tidelog source: {', '.join(unknown)}{hint}; it has {', '.join(KNOWN_OPTIONS)}",
            field=unknown[0],
        )
    return {known[name.lower()]: str(value).strip() for name, value in given.items()}


def _subscription(options: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _SUBSCRIPTIONS if name in options]
    if len(chosen) != 1:
        found = " and ".join(chosen) if chosen else "none"
        raise Invalid(f"give exactly one of {', '.join(_SUBSCRIPTIONS)}; found {found}", field="subscribe")
    text = options[chosen[0]]
    if chosen[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise Invalid("subscribe names no topic: give their names, separated by commas", field="subscribe")
        return TopicNames(names)
    return _pattern(text) if chosen[0] == "subscribePattern" else _assignment(text)


def _pattern(text: str) -> TopicPattern:
    try:
        return TopicPattern(re.compile(text))
    except re.error as error:
        raise Invalid(
            f"subscribePattern {text!r} is not a regular expression: {error}", field="subscribePattern"
        ) from None


def _assignment(text: str) -> Assignment:
    form = 'assign is JSON such as {"topic": [0, 1]}'
    named = [
        (topic, number) for topic, numbers in _by_topic(text, list[_Partition], form, "assign") for number in numbers
    ]
    if not named:
        raise Invalid(f"{form}; it names no partition", field="assign")
    return Assignment(tuple(dict.fromkeys(named)))


def _start(options: Mapping[str, str]) -> Bound:
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        name = "startingOffsetsByTimestampStrategy"
        raise Invalid(f"{name} is error or latest, not {strategy!r}", field=name)
    if "startingTimestamp" in options:
        return AtTimestamp(_timestamp(options, "startingTimestamp"), must_match=strategy == "error")
    return _offsets(options.get("startingOffsets", "earliest"), "startingOffsets", refused="latest")


def _end(options: Mapping[str, str]) -> Bound:
    if "endingTimestamp" in options:
        return AtTimestamp(_timestamp(options, "endingTimestamp"))
    return _offsets(options.get("endingOffsets", "latest"), "endingOffsets", refused="earliest")


def _offsets(text: str, option: str, *, refused: Literal["earliest", "latest"]) -> Bound:
    word = text.lower()
    if word == refused:
        raise Invalid(f"a batch read cannot have {option}={refused}", field=option)
    if word in ("earliest", "latest"):
        return AtEarliest() if word == "earliest" else AtLatest()
    form = f'{option} is earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}'
    offsets = tuple(
        (topic, partition, offset)
        for topic, by_partition in _by_topic(text, dict[_Partition, _Offset], form, option)
        for partition, offset in by_partition.items()
    )
    refused_offset = LATEST_OFFSET if refused == "latest" else EARLIEST_OFFSET
    for topic, partition, offset in offsets:
        if offset == refused_offset:
            where = f"({offset}) for {topic}-{partition}"
            raise Invalid(f"a batch read cannot have {option}={refused} {where}", field=option)
    return AtOffsets(option, offsets)


def _by_topic(text: str, shape: type[T], form: str, option: str) -> Iterator[tuple[str, T]]:
    """The members of a JSON object, each as a `shape`. Raises `Invalid` with the topic that does not fit."""
    try:
        topics = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Invalid(f"{form}; {text[:80]!r} does not parse: {error}", field=option) from None
    for topic, raw in topics.items():
        try:
            yield topic, msgspec.json.decode(raw, type=shape)
        except msgspec.MsgspecError:
            shown = bytes(raw)[:80].decode(errors="replace")
            raise Invalid(f"{form}; {topic!r} has {shown}", field=option) from None


def _timestamp(options: Mapping[str, str], name: str) -> int:
    text = options[name]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Invalid(f"{name} is milliseconds since 1970-01-01 UTC, not {text[:80]!r}", field=name)
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise Invalid(f"{name} is true or false, not {text[:80]!r}", field=name)
    return text == "true"


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise Invalid(f"{name} is a whole number above 0, not {text[:80]!r}", field=name)
    return int(text)


def _broker(url: str) -> str:
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise Invalid(f"broker is a URL such as {DEFAULT_BROKER}, not {url[:200]!r}", field="broker")
    return url.rstrip("/")
