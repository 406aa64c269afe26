"""``/brokers`` and ``/topics``: brokers, topics, partitions and their offsets."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.fetch import EARLIEST, LATEST
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.broker_numbers import NO_BROKER, broker_numbers, leader_numbers
from tidelog.services.http.kafka_rest.rest_answer import (
    check_partition,
    partition_number,
    rest_answer,
    topic_name,
    topic_of,
)
from tidelog.services.http.kafka_rest.rest_media import management_media
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.service import Service


class Brokers(msgspec.Struct, frozen=True):
    """The brokers of the cluster."""

    brokers: list[int]


class Replica(msgspec.Struct, frozen=True):
    """The bucket holds the records; the leader is the only replica."""

    broker: int
    leader: bool = True
    in_sync: bool = True


class Partition(msgspec.Struct, frozen=True):
    """`leader`: -1 while no broker leads the partition."""

    partition: int
    leader: int
    replicas: tuple[Replica, ...]


class TopicAnswer(msgspec.Struct, frozen=True):
    """A topic."""

    name: str
    configs: dict[str, str]
    partitions: list[Partition]


class Offsets(msgspec.Struct, frozen=True):
    """The first offset of a partition and the offset after its last record."""

    beginning_offset: int
    end_offset: int


class TopicCalls:
    """The calls that read topics."""

    def __init__(self, service: Service) -> None:
        self._broker = service.broker

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("GET", "/brokers", self.brokers)
        routes.add("GET", "/topics", self.topics)
        routes.add("GET", "/topics/{topic}", self.topic)
        routes.add("GET", "/topics/{topic}/partitions", self.partitions)
        routes.add("GET", "/topics/{topic}/partitions/{partition}", self.partition)
        routes.add("GET", "/topics/{topic}/partitions/{partition}/offsets", self.offsets)

    async def brokers(self, request: Request) -> Response:
        media = management_media(request)
        return rest_answer(Brokers(broker_numbers(self._broker.cluster(context_of(request)))), media)

    async def topics(self, request: Request) -> Response:
        media = management_media(request)
        return rest_answer([topic.name for topic in self._broker.topics(context_of(request))], media)

    async def topic(self, request: Request) -> Response:
        media, topic = await self._asked(request)
        answer = TopicAnswer(topic.name, topic.config.as_kafka(), self._partitions(request, topic))
        return rest_answer(answer, media)

    async def partitions(self, request: Request) -> Response:
        media, topic = await self._asked(request)
        return rest_answer(self._partitions(request, topic), media)

    async def partition(self, request: Request) -> Response:
        media, topic = await self._asked(request)
        number = partition_number(request)
        check_partition(topic, number)
        return rest_answer(self._partitions(request, topic)[number], media)

    async def offsets(self, request: Request) -> Response:
        media, topic = await self._asked(request)
        number = partition_number(request)
        check_partition(topic, number)
        context = context_of(request)
        first = await self._broker.resolve(context, topic.name, number, EARLIEST)
        return rest_answer(Offsets(first, await self._broker.resolve(context, topic.name, number, LATEST)), media)

    async def _asked(self, request: Request) -> tuple[str, Topic]:
        """The media type of the answer, and the topic."""
        media = management_media(request)
        return media, await topic_of(self._broker, context_of(request), topic_name(request))

    def _partitions(self, request: Request, topic: Topic) -> list[Partition]:
        leaders = leader_numbers(self._broker.cluster(context_of(request)))
        return [_partition(number, leaders.get(shard, NO_BROKER)) for number, shard in enumerate(topic.shards)]


def _partition(number: int, leader: int) -> Partition:
    return Partition(number, leader, () if leader == NO_BROKER else (Replica(leader),))
