"""DescribeProducers (61): the idempotent producers of partitions that this broker leads. Those of HTTP are not told:
their ids are texts."""

from __future__ import annotations

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode

from tidelog.coordinator.topics.topic import checked_topic_name
from tidelog.services.broker.api.produce import ActiveProducer
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.produced_batches import PRODUCER_PREFIX
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import Invalid, TidelogError

_WRAP = 2**31
_NONE = -1


class DescribeProducersApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, DescribeProducersRequest)
        topics = [
            TopicResponse(
                name=topic.name,
                partitions=tuple([await self._partition(call, topic.name, n) for n in topic.partition_indexes]),
            )
            for topic in request.topics
        ]
        return encode(call, DescribeProducersResponse(throttle_time=NO_TIME, topics=tuple(topics)))

    async def _partition(self, call: Call, topic: str, number: int) -> PartitionResponse:
        code, message, found = ErrorCode.none, None, ()
        try:
            checked_topic_name(topic)
            active = await self._broker.producers(call.context.not_forwarded(), topic, number)
            found = tuple(_state(each) for each in active if each.producer_id.startswith(PRODUCER_PREFIX))
        except Invalid as error:
            code, message = ErrorCode.invalid_topic_exception, str(error)
        except TidelogError as error:
            code, message = error_code(error, Family.READ), str(error)
        return PartitionResponse(partition_index=number, error_code=code, error_message=message, active_producers=found)


def _state(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=int(producer.producer_id.removeprefix(PRODUCER_PREFIX)),
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence % _WRAP,
        last_timestamp=producer.timestamp_ms,
        coordinator_epoch=_NONE,
        current_txn_start_offset=_NONE,
    )
