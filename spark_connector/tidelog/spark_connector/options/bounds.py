"""Where a read begins and ends: startingTimestamp, startingOffsetsByTimestamp, startingOffsets, and those of the end.

The first of these that is given counts, as in Kafka's source. Offsets and times by partition must name exactly the
partitions that are read. In offsets and times by partition, -2 stands for the earliest and -1 for the latest offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from tidelog.spark_connector.options.option_text import members_of_json, milliseconds_since_1970
from tidelog.spark_connector.options.subscription import PartitionNumber
from tidelog.storage.errors import Invalid

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1

START_OPTIONS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END_OPTIONS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY = "startingOffsetsByTimestampStrategy"

Word: TypeAlias = Literal["earliest", "latest"]
_OffsetOrTime: TypeAlias = Annotated[int, Meta(ge=EARLIEST_OFFSET, le=2**63 - 1)]
Places: TypeAlias = tuple[tuple[str, int, int], ...]
"""An offset or a time for each (topic, partition)."""


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
    option: str = "startingTimestamp"

    def time_of(self, topic: str, partition: int) -> int:  # noqa: ARG002  # the same for all
        return self.timestamp_ms


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each (topic, partition) read, -2 and -1 as in Kafka."""

    option: str
    places: Places


@dataclass(frozen=True)
class AtTimestamps:
    """A time for each (topic, partition) read, as in `AtTimestamp`; -2 and -1 as in `AtOffsets`."""

    option: str
    places: Places
    must_match: bool = False

    def time_of(self, topic: str, partition: int) -> int:
        return next(at for *place, at in self.places if place == [topic, partition])


Bound: TypeAlias = AtEarliest | AtLatest | AtTimestamp | AtOffsets | AtTimestamps


def parse_start(options: Mapping[str, str], *, default: Word, refused: Word | None) -> Bound:
    """`refused`: the end of the log at which the read cannot begin; None for a stream, which can begin at both."""
    strategy = options.get(STRATEGY, "error").lower()
    if strategy not in ("error", "latest"):
        raise Invalid(f"{STRATEGY} is error or latest, not {strategy!r}", field=STRATEGY)
    return _bound(options, START_OPTIONS, default=default, refused=refused, must_match=strategy == "error")


def parse_end(options: Mapping[str, str]) -> Bound:
    """The end of a batch read."""
    return _bound(options, END_OPTIONS, default="latest", refused="earliest", must_match=False)


def check_covers(bound: Bound, wanted: Sequence[tuple[str, int]]) -> None:
    """Check Kafka's rule: offsets or times by partition must name exactly the partitions read. Raises `Invalid`."""
    if not isinstance(bound, AtOffsets | AtTimestamps):
        return
    named = {(topic, partition) for topic, partition, _ in bound.places}
    for difference, verb in ((set(wanted) - named, "lacks"), (named - set(wanted), "names, though it is not read,")):
        if difference:
            some = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(difference)[:10])
            raise Invalid(
                f"{bound.option} {verb} {some}: name exactly the partitions that are read; "
                f"{EARLIEST_OFFSET} is earliest, {LATEST_OFFSET} latest",
                field=bound.option,
            )


def _bound(
    options: Mapping[str, str], names: tuple[str, str, str], *, default: Word, refused: Word | None, must_match: bool
) -> Bound:
    at_timestamp, by_timestamp, offsets = names
    if at_timestamp in options:
        return AtTimestamp(milliseconds_since_1970(options, at_timestamp), must_match, at_timestamp)
    if by_timestamp in options:
        form = (
            f'{by_timestamp} is JSON of milliseconds since 1970-01-01 UTC, such as {{"topic": {{"0": 1763712000000}}}}'
        )
        return AtTimestamps(by_timestamp, _places(options[by_timestamp], form, by_timestamp, refused), must_match)
    word = options.get(offsets, default).lower()
    if word == refused:
        raise Invalid(f"a batch read cannot have {offsets}={refused}", field=offsets)
    if word in ("earliest", "latest"):
        return AtEarliest() if word == "earliest" else AtLatest()
    form = f'{offsets} is earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}'
    return AtOffsets(offsets, _places(options[offsets], form, offsets, refused))


def _places(text: str, form: str, option: str, refused: Word | None) -> Places:
    members = members_of_json(text, dict[PartitionNumber, _OffsetOrTime], form, option)
    places = tuple((topic, partition, at) for topic, found in members for partition, at in found.items())
    refused_offset = {None: None, "latest": LATEST_OFFSET, "earliest": EARLIEST_OFFSET}[refused]
    for topic, partition, at in places:
        if at == refused_offset:
            where = f"({at}) for {topic}-{partition}"
            raise Invalid(f"a batch read cannot have {option}={refused} {where}", field=option)
    return places
