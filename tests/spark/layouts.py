"""Topics with every possible layout: cold, hot, both, one partition cold and one hot, and empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.spark.serving import ARCHIVES, KEEPS_HOT, Record, Serving, records, serving

COLD_PARTS = (0, 700, 1_500)
"""Archived one part after the other, so that there are several segments, with borders at these offsets."""
HOT_END = 2_100

LAYOUTS: dict[str, tuple[tuple[int, int], ...]] = {
    "cold": ((1_500, 1_500), (1_500, 1_500)),
    "hot": ((0, 900), (0, 600)),
    "mixed": ((1_500, 2_100), (1_500, 1_800)),
    "uneven": ((1_500, 1_500), (0, 600), (0, 0), (1_500, 2_100)),
    "empty": ((0, 0), (0, 0)),
}
"""topic -> the cold end and high watermark of each partition."""


def expected_records(topic: str) -> dict[int, list[Record]]:
    """Records by partition."""
    return {partition: records(partition, 0, end) for partition, (_, end) in enumerate(LAYOUTS[topic])}


@contextmanager
def serving_layouts(folder: Path, store: str) -> Iterator[Serving]:
    """A broker that holds `LAYOUTS` and archives nothing more."""
    with serving(folder, store, ARCHIVES) as broker:
        for topic, partitions in LAYOUTS.items():
            broker.create_topic(topic, len(partitions))
        for start, end in pairwise(COLD_PARTS):
            _archive_part(broker, start, end)
    with serving(folder, store, KEEPS_HOT) as broker:
        for topic, partitions in LAYOUTS.items():
            for partition, (cold_end, end) in enumerate(partitions):
                if cold_end < end:
                    broker.produce(topic, partition, records(partition, cold_end, end))
        yield broker


def _archive_part(broker: Serving, start: int, end: int) -> None:
    cold = [
        (topic, partition)
        for topic, partitions in LAYOUTS.items()
        for partition, (cold_end, _) in enumerate(partitions)
        if cold_end
    ]
    for topic, partition in cold:
        broker.produce(topic, partition, records(partition, start, end))
    for topic in {topic for topic, _ in cold}:
        broker.wait_until_archived(topic)
