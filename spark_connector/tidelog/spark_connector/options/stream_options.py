"""The options of a stream: those of a batch read without an end, and bounds of a micro-batch.

    from                  as in a batch read, but `latest` is allowed, and the default. It counts only when a stream
                          begins; later its checkpoint does
    maxOffsetsPerTrigger  at most this many offsets a micro-batch, shared by the partitions in proportion to their
                          backlogs
    maxBytesPerTrigger    about this many bytes of records (512k, 64m); each partition with records advances
    minOffsetsPerTrigger  wait until there are so many,
    maxTriggerDelay       but at most this long (15m)

`maxBytesPerTrigger` is not an option of Spark's Kafka source; the others are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.spark_connector.options.bounds import END_OPTIONS, AtLatest, parse_start
from tidelog.spark_connector.options.option_text import by_known_name, byte_count, duration_ms, positive
from tidelog.spark_connector.options.read_options import KNOWN_OPTIONS, ReadOptions, read_options
from tidelog.storage.errors import Invalid

MAX_TRIGGER_DELAY = "15m"


@dataclass(frozen=True)
class AdmissionLimits:
    """Bounds of a micro-batch; None: no bound."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


@dataclass(frozen=True)
class StreamOptions:
    """One stream. `read.end` is the latest offset of each trigger."""

    read: ReadOptions
    limits: AdmissionLimits


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """As `parse_options`. Raises `Invalid`."""
    options = by_known_name(given, KNOWN_OPTIONS)
    for name in END_OPTIONS:
        if name in options:
            raise Invalid(f"a stream has no end: remove {name}, or use trigger(availableNow=True)", field=name)
    start = parse_start(options, default="latest", refused=None)
    return StreamOptions(read_options(options, start, AtLatest()), _limits(options))


def _limits(options: Mapping[str, str]) -> AdmissionLimits:
    least, most = positive(options, "minOffsetsPerTrigger"), positive(options, "maxOffsetsPerTrigger")
    if least and most and least > most:
        raise Invalid(
            f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}", field="minOffsetsPerTrigger"
        )
    return AdmissionLimits(
        offsets_max=most,
        bytes_max=byte_count(options, "maxBytesPerTrigger"),
        offsets_min=least,
        delay_ms_max=duration_ms(options, "maxTriggerDelay", default=MAX_TRIGGER_DELAY),
    )
