"""CreateTopics (19).

The bucket holds all records, so every replication factor above 0 is accepted, and the answer says 1. Assignments to
brokers are taken as a number of partitions: the cluster places shards itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import Topic, TopicConfig, checked_topic_name
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused, refusal_of
from tidelog.services.kafka.apis.topic_configs import ConfigEntry, stored_changes, topic_config_entries
from tidelog.services.kafka.apis.topic_lookup import TopicLookup, topic_uuid
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import AlreadyExists, NotFound, TidelogError

DEFAULT = -1
_REPLICAS = 1


class CreateTopicsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, CreateTopicsRequest)
        named = Counter(each.name for each in request.topics)
        wanted = {each.name: each for each in request.topics}
        results = [
            await self._result(call, each, named[name] > 1, request.validate_only) for name, each in wanted.items()
        ]
        return encode(call, CreateTopicsResponse(throttle_time=NO_TIME, topics=tuple(results)))

    async def _result(
        self, call: Call, wanted: CreatableTopic, is_twice: bool, only_check: bool
    ) -> CreatableTopicResult:
        try:
            if is_twice:
                raise Refused(ErrorCode.invalid_request, f"the request names the topic {wanted.name[:300]!r} twice")
            partitions, configs = _partitions(wanted), _configs(wanted)
            if only_check:
                return await self._checked(call, wanted.name, partitions, configs)
            topic = await self._broker.create_topic(call.context, wanted.name, partitions, configs)
        except TidelogError as error:
            return _failed(wanted.name, error)
        return _created(topic)

    async def _checked(
        self, call: Call, name: str, partitions: int | None, configs: Mapping[str, str | None]
    ) -> CreatableTopicResult:
        """The answer to a request that creates nothing."""
        try:
            await TopicLookup(self._broker, call.context).by_name(checked_topic_name(name))
        except NotFound:
            count = partitions or self._service.settings.num_partitions
            self._service.topic_limits.check_new(self._broker.topics(call.context), count)
            return _result_of(name, None, count, TopicConfig().altered(configs))
        raise AlreadyExists(f"the topic {name} exists")


def _partitions(wanted: CreatableTopic) -> int | None:
    """The number of partitions; None: the broker's default. Raises `Refused`."""
    if wanted.assignments:
        return _assigned(wanted)
    if wanted.replication_factor != DEFAULT and wanted.replication_factor < 1:
        raise Refused(ErrorCode.invalid_replication_factor, "the replication factor must be above 0, or -1")
    if wanted.num_partitions != DEFAULT and wanted.num_partitions < 1:
        raise Refused(ErrorCode.invalid_partitions, "the number of partitions must be above 0, or -1")
    return None if wanted.num_partitions == DEFAULT else int(wanted.num_partitions)


def _assigned(wanted: CreatableTopic) -> int:
    if (wanted.num_partitions, wanted.replication_factor) != (DEFAULT, DEFAULT):
        text = "both assignments and a number of partitions or replicas are given: give -1 for the numbers"
        raise Refused(ErrorCode.invalid_request, text)
    numbers: Collection[int] = sorted(each.partition_index for each in wanted.assignments)
    if list(numbers) != list(range(len(numbers))):
        raise Refused(ErrorCode.invalid_replica_assignment, "the assigned partitions must be 0, 1, 2 and so on")
    return len(numbers)


def _configs(wanted: CreatableTopic) -> Mapping[str, str | None]:
    """Raises `Refused`: a topic that does not exist has no config that a null could reset."""
    if null := next((config.name for config in wanted.configs if config.value is None), None):
        raise Refused(
            ErrorCode.invalid_config, f"the config {null} of a new topic is null: give a value or leave it out"
        )
    return stored_changes({config.name: config.value for config in wanted.configs})


def _created(topic: Topic) -> CreatableTopicResult:
    return _result_of(topic.name, topic, topic.partition_count, topic.config)


def _result_of(name: str, topic: Topic | None, partitions: int, config: TopicConfig) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic_uuid(topic) if topic else None,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=partitions,
        replication_factor=_REPLICAS,
        configs=tuple(map(_config, topic_config_entries(config))),
    )


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=False,
    )


def _failed(name: str, error: TidelogError) -> CreatableTopicResult:
    code, message = refusal_of(error)
    return CreatableTopicResult(name=name, topic_id=None, error_code=code, error_message=message, configs=())
