"""The error codes that members of groups understand, and values that all APIs of groups share.

The two kinds of groups have different codes for the same errors of the coordinator: a member of a classic group knows
generations, one of a consumer group (KIP-848) member epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.storage import errors

_MS = timedelta(milliseconds=1)
_CLASSIC: Mapping[type[errors.TidelogError], ErrorCode] = {
    errors.MemberFenced: ErrorCode.illegal_generation,
    errors.StaleMemberEpoch: ErrorCode.illegal_generation,
    errors.InstanceInUse: ErrorCode.fenced_instance_id,
}
_CLASSIC_FIELDS = {"session_timeout_ms": ErrorCode.invalid_session_timeout}
_CONSUMER_FIELDS = {
    "topic_pattern": ErrorCode.invalid_regular_expression,
    "assignor": ErrorCode.unsupported_assignor,
}


def classic_code(error: errors.TidelogError) -> ErrorCode:
    """For JoinGroup and its like."""
    if type(error) is errors.Invalid:
        return _CLASSIC_FIELDS.get(error.field or "", ErrorCode.invalid_group_id)
    return _CLASSIC.get(type(error)) or error_code(error, Family.GROUP)


def consumer_code(error: errors.TidelogError) -> ErrorCode:
    """For ConsumerGroupHeartbeat and its like."""
    if type(error) is errors.Invalid:
        return _CONSUMER_FIELDS.get(error.field or "", ErrorCode.invalid_request)
    return error_code(error, Family.GROUP)


def milliseconds(time: timedelta) -> int:
    return time // _MS


def duration(ms: int) -> timedelta:
    return ms * _MS
