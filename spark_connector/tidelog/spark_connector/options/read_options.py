"""The options of a batch read. Names and meaning are those of Spark's Kafka source.

    which records     exactly one of subscribe (names, by commas), assign (JSON {"topic": [0, 1]}), subscribePattern
                      (a regular expression that must match the whole topic name)
    from              startingTimestamp (ms), else startingOffsetsByTimestamp (JSON {"topic": {"0": ms}}), else
                      startingOffsets: earliest (default) or JSON {"topic": {"0": 23, "1": -2}}
    up to             endingTimestamp, else endingOffsetsByTimestamp, else endingOffsets: latest (default) or JSON,
                      exclusive
    how               includeHeaders, failOnDataLoss, startingOffsetsByTimestampStrategy, minPartitions,
                      maxRecordsPerPartition

As in Kafka, -2 is earliest and -1 is latest, and a batch read cannot start at the latest or end at the earliest offset.
Tidelog adds `broker` (its URL) and `store` (the URL under which readers find the bucket, if the broker's URL does not
work for them). The options of a stream (`stream_options`) do nothing in a batch read; a warning names them.

Parsing is pure and asks no broker, so a wrong option fails before anything is read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.spark_connector.options.bounds import END_OPTIONS, START_OPTIONS, STRATEGY, Bound, parse_end, parse_start
from tidelog.spark_connector.options.option_text import DEFAULT_BROKER, broker_url, by_known_name, flag, positive
from tidelog.spark_connector.options.subscription import SUBSCRIPTIONS, Subscription, parse_subscription

_log = logging.getLogger("tidelog.spark_connector")

STREAM_OPTIONS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
KNOWN_OPTIONS = (
    *SUBSCRIPTIONS,
    *START_OPTIONS,
    *END_OPTIONS,
    STRATEGY,
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    *STREAM_OPTIONS,
    "broker",
    "store",
)


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
    options = by_known_name(given, KNOWN_OPTIONS)
    if ignored := [name for name in STREAM_OPTIONS if name in options]:
        _log.warning("a batch read ignores %s", ", ".join(ignored))
    return read_options(options, parse_start(options, default="earliest", refused="latest"), parse_end(options))


def read_options(options: Mapping[str, str], start: Bound, end: Bound) -> ReadOptions:
    """The rest of the options, which a batch read and a stream share."""
    return ReadOptions(
        subscription=parse_subscription(options),
        start=start,
        end=end,
        include_headers=flag(options, "includeHeaders", default=False),
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        tasks_min=positive(options, "minPartitions"),
        records_per_task_max=positive(options, "maxRecordsPerPartition"),
        broker=broker_url(options),
        store=options.get("store") or None,
    )


def asks_for_headers(given: Mapping[str, str]) -> bool:
    """Whether the rows have the column `headers`. Checks only the names of the other options: Spark asks for the
    schema before it says whether it reads a batch or a stream."""
    return flag(by_known_name(given, KNOWN_OPTIONS), "includeHeaders", default=False)
