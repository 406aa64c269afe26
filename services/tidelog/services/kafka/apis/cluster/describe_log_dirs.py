"""DescribeLogDirs (35): the archived bytes of the partitions that this broker leads. The store is their only directory.

A segment holds records of several partitions, so the bytes of a partition are its share of the segment's records.
Records that are not archived yet do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader, TidelogError
from tidelog.wire.topic_log import SegmentDescription, TopicLogRequest


class DescribeLogDirsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeLogDirsRequest)
        code = ErrorCode.none
        topics: list[DescribeLogDirsTopic] = []
        try:
            for topic, numbers in self._asked(call, request):
                sizes = await self._sizes(call, topic, numbers)
                if sizes:
                    topics.append(_topic(topic.name, sizes))
        except TidelogError as error:
            code, topics = error_code(error, Family.READ), []
        found = DescribeLogDirsResult(error_code=code, log_dir=self._broker.status().store_url, topics=tuple(topics))
        answer = DescribeLogDirsResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, results=(found,))
        return encode(call, answer)

    def _asked(self, call: Call, request: DescribeLogDirsRequest) -> Iterator[tuple[Topic, tuple[int, ...]]]:
        """The topics that exist, with those of the partitions asked for that this broker leads."""
        asked = None if request.topics is None else {each.topic: each.partitions for each in request.topics}
        for topic in self._broker.topics(call.context):
            if asked is None or topic.name in asked:
                wanted = range(topic.partition_count) if asked is None else sorted(set(asked[topic.name]))
                numbers = (number for number in wanted if 0 <= number < topic.partition_count)
                yield topic, tuple(n for n in numbers if self._broker.route(call.context, topic.name, n).local)

    async def _sizes(self, call: Call, topic: Topic, numbers: tuple[int, ...]) -> Mapping[int, int]:
        """The archived bytes of the partitions `numbers`, shard by shard."""
        sizes = dict.fromkeys(numbers, 0)
        for shard in sorted({topic.shards[number] for number in numbers}):
            of_shard = tuple(number for number in numbers if topic.shards[number] == shard)
            try:
                async for segment in self._segments(call, topic.name, shard, of_shard):
                    for number, size in _shares(segment).items():
                        sizes[number] += size
            except (NotLeader, LeaderUnknown, NotFound):  # led elsewhere by now, or deleted
                for number in of_shard:
                    del sizes[number]
        return sizes

    async def _segments(
        self, call: Call, topic: str, shard: int, numbers: tuple[int, ...]
    ) -> AsyncIterator[SegmentDescription]:
        after = None
        while True:
            request = TopicLogRequest(partitions=numbers, shard=shard, fresh=False, after=after)
            page = await self._broker.topic_log(call.context.not_forwarded(), topic, request)
            for segment in page.segments:
                yield segment
            if (after := page.next) is None:
                return


def _shares(segment: SegmentDescription) -> Mapping[int, int]:
    """The bytes of each partition in `segment`, of those that were asked for."""
    found: defaultdict[int, int] = defaultdict(int)
    for span in segment.spans:
        found[span.partition] += segment.size_bytes * span.records // max(1, segment.records)
    return found


def _topic(name: str, sizes: Mapping[int, int]) -> DescribeLogDirsTopic:
    partitions = (
        DescribeLogDirsPartition(partition_index=number, partition_size=size, offset_lag=0, is_future_key=False)
        for number, size in sorted(sizes.items())
    )
    return DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
