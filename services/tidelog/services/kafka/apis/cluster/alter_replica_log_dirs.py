"""AlterReplicaLogDirs (34): refused, because the only place of records is the bucket."""

from __future__ import annotations

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class AlterReplicaLogDirsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, AlterReplicaLogDirsRequest)
        results = tuple(
            AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=tuple(map(_refused, topic.partitions)))
            for each in request.dirs
            for topic in each.topics
        )
        return encode(call, AlterReplicaLogDirsResponse(throttle_time=NO_TIME, results=results))


def _refused(partition: int) -> AlterReplicaLogDirPartitionResult:
    return AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=ErrorCode.log_dir_not_found)
