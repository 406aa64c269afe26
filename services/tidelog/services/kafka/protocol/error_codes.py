"""The error code of Kafka for each error of Tidelog: the one place that decides it.

Clients react to a code by the request that it answers. A Java consumer, for example, ends on a code that it does not
expect of Fetch. So an error has a code for each `Family` of requests. Where Tidelog's error says "try again", the code
is one that clients of that family retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

from kio.schema.errors import ErrorCode

from tidelog.storage import errors

Codes: TypeAlias = tuple[ErrorCode, ErrorCode, ErrorCode, ErrorCode]


class Family(IntEnum):
    """Which requests are answered: Produce and its like, Fetch and ListOffsets, those to groups, the rest."""

    WRITE = 0
    READ = 1
    GROUP = 2
    ADMIN = 3


def error_code(error: errors.TidelogError, family: Family) -> ErrorCode:
    """The code of the nearest class of `error` in the table. A topic whose name is invalid does not exist for those who
    read and write."""
    if type(error) is errors.Invalid and error.field == "topic" and family in {Family.WRITE, Family.READ}:
        return ErrorCode.unknown_topic_or_partition
    return next(_TABLE[kind][family] for kind in type(error).__mro__ if kind in _TABLE)


def _all(code: ErrorCode) -> Codes:
    return (code, code, code, code)


_TABLE: Mapping[type[BaseException], Codes] = {
    errors.TidelogError: _all(ErrorCode.unknown_server_error),
    errors.Invalid: _all(ErrorCode.invalid_request),
    errors.OutOfRange: _all(ErrorCode.offset_out_of_range),
    errors.TooLarge: (
        ErrorCode.message_too_large,
        ErrorCode.message_too_large,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.policy_violation,
    ),
    errors.UnsupportedMedia: _all(ErrorCode.unsupported_compression_type),
    errors.NotFound: (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.group_id_not_found,
        ErrorCode.unknown_topic_or_partition,
    ),
    errors.NoSuchObject: _all(ErrorCode.kafka_storage_error),
    errors.UnknownMember: _all(ErrorCode.unknown_member_id),
    errors.UnknownGroup: _all(ErrorCode.unknown_member_id),
    errors.Conflict: _all(ErrorCode.unknown_server_error),
    errors.AlreadyExists: _all(ErrorCode.topic_already_exists),
    errors.OffsetConflict: _all(ErrorCode.invalid_request),  # only HTTP has expected offsets
    errors.SequenceConflict: _all(ErrorCode.out_of_order_sequence_number),
    errors.ProducerFenced: _all(ErrorCode.invalid_producer_epoch),
    errors.MemberFenced: _all(ErrorCode.fenced_member_epoch),
    errors.StaleMemberEpoch: _all(ErrorCode.stale_member_epoch),
    errors.InstanceInUse: _all(ErrorCode.unreleased_instance_id),
    errors.GroupNotEmpty: _all(ErrorCode.non_empty_group),
    errors.WrongGroupKind: _all(ErrorCode.inconsistent_group_protocol),
    errors.MemberIdRequired: _all(ErrorCode.member_id_required),
    errors.RebalanceInProgress: _all(ErrorCode.rebalance_in_progress),
    errors.Fenced: (
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_coordinator,
        ErrorCode.request_timed_out,
    ),
    errors.Denied: (
        ErrorCode.kafka_storage_error,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_server_error,
    ),
    errors.Unavailable: (
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_not_available,
        ErrorCode.request_timed_out,
    ),
    errors.Contended: (
        ErrorCode.not_enough_replicas,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    ),
    errors.Overloaded: (
        ErrorCode.not_enough_replicas,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    ),
    errors.GroupFull: _all(ErrorCode.group_max_size_reached),
    errors.NotLeader: (
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower,
    ),
    errors.LeaderUnknown: (
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_leader_or_follower,
        ErrorCode.coordinator_not_available,
        ErrorCode.leader_not_available,
    ),
    errors.NewerFormat: _all(ErrorCode.kafka_storage_error),
    errors.Corrupt: _all(ErrorCode.kafka_storage_error),
    errors.RecordsLost: _all(ErrorCode.kafka_storage_error),
}
