"""The offsets that a job reads, decided once: `plan` describes them, and `run` reads exactly them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.spark_connector.jobs.job import Facts
from tidelog.spark_connector.jobs.named_values import named_values
from tidelog.spark_connector.options.option_text import DEFAULT_BROKER
from tidelog.spark_connector.options.read_options import parse_options
from tidelog.spark_connector.reads.snapshot import TopicSnapshot, take_snapshot


@dataclass(frozen=True)
class TopicRanges:
    """The ranges of a snapshot. `options`: of a read that takes exactly these offsets, and nothing that comes later."""

    options: Mapping[str, str]
    topics: int
    partitions: int
    offsets: int

    @property
    def facts(self) -> Facts:
        """`ending_offsets` are the ``startingOffsets`` of a run that goes on from here."""
        return {
            "topics": self.topics,
            "partitions": self.partitions,
            "offsets": self.offsets,
            "ending_offsets": self.options["endingOffsets"],
        }


def add_read_options(parser: ArgumentParser) -> None:
    """Options that say what is read."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="NAMES", help="topics to read, with commas")
    which.add_argument("--topic-pattern", metavar="REGEX", help="topics whose whole name matches")
    parser.add_argument("--broker", default=DEFAULT_BROKER, help="URL of a broker (default: %(default)s)")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of a read, as startingOffsets or startingTimestamp; may be given several times",
    )


def read_options(given: Namespace) -> dict[str, str]:
    """The options of a read. Raises `Invalid`."""
    topics = {"subscribe": given.topic} if given.topic else {"subscribePattern": given.topic_pattern}
    return {"broker": given.broker, **topics, **named_values("option", given.option)}


def ranges_now(options: Mapping[str, str]) -> TopicRanges:
    """What a read with `options` takes now. Raises `Invalid`, `NotFound`, `DataLoss`, `Unavailable`."""
    found = take_snapshot(parse_options(dict(options)))
    starts, ends = ({topic.topic.name: _offsets(topic, end=end) for topic in found} for end in (False, True))
    fixed = {
        **{name: value for name, value in options.items() if not _chooses_records(name)},
        "assign": json.dumps({name: sorted(map(int, offsets)) for name, offsets in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    each = [one for topic in found for one in topic.ranges]
    return TopicRanges(fixed, len(found), len(each), sum(one.end - one.start for one in each))


def _offsets(topic: TopicSnapshot, *, end: bool) -> dict[str, int]:
    return {str(each.ends.partition): each.end if end else each.start for each in topic.ranges}


def _chooses_records(name: str) -> bool:
    lower = name.lower()
    return lower.startswith(("subscribe", "starting", "ending")) or lower == "assign"
