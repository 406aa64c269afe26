"""A request's records, checked against their topic's rules and split into what each partition gets.

Large requests are checked and split in a thread, so that the loop goes on with others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.write.admission import admit
from tidelog.services.broker.write.routing import Share, check_all_name, route, whole
from tidelog.services.runtime.settings import Settings
from tidelog.storage.errors import Invalid, NotFound
from tidelog.storage.runtime import Clock

ROUTED_INLINE_MAX = 20_000
"""Requests of more records are checked and split in a thread."""


class Sharing:
    """One broker's; requests without keys take turns over a topic's partitions."""

    def __init__(self, settings: Settings, clock: Clock, executor: Executor) -> None:
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    async def shares(self, topic: Topic, draft: Draft, options: ProduceOptions) -> Sequence[Share]:
        """Raises `Invalid`, `TooLarge`, `NotFound`; nothing is taken by it."""
        if options.partition is not None or draft.records.num_rows <= ROUTED_INLINE_MAX:
            return self._shares(topic, draft, options)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._shares, topic, draft, options)

    def forget(self, topic: Topic) -> None:
        """It was deleted."""
        self._turns.pop(topic.topic_id, None)

    def _shares(self, topic: Topic, draft: Draft, options: ProduceOptions) -> Sequence[Share]:
        records = admit(
            draft.records,
            topic.config,
            key_bytes_max=self._settings.key_max_bytes,
            now_ms=self._clock.now_ms(),
        )
        if options.partition is None:
            if options.producer or options.expected_offset is not None:
                raise Invalid(
                    "expected_offset and a producer's sequence need one partition: name it", field="partition"
                )
            return route(
                records,
                draft.partitions,
                held_bytes=draft.body_bytes,
                partition_count=topic.partition_count,
                keyless_partition=next(self._turns[topic.topic_id]) % topic.partition_count,
            )
        check_partition(topic, options.partition)
        check_all_name(draft.partitions, options.partition)
        return (whole(options.partition, records, draft.body_bytes),)


def check_partition(topic: Topic, partition: int) -> None:
    """Raises `NotFound` for a partition that is not there."""
    if not 0 <= partition < topic.partition_count:
        raise NotFound(f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}")
