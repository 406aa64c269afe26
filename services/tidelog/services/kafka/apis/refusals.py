"""Refusals of administrative requests: a code of Kafka and a message."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.protocol.error_codes import Family, error_code
from tidelog.storage.errors import Invalid, TidelogError

_BY_FIELD = {
    "topic": ErrorCode.invalid_topic_exception,
    "name": ErrorCode.policy_violation,  # there are as many topics as there may be
    "partitions": ErrorCode.invalid_partitions,
}
"""What is wrong with a request on a topic, by the field that `Invalid` names; a field with a dot is a config."""


class Refused(Invalid):
    """A refusal with the code that Kafka has for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def refusal_of(error: TidelogError) -> tuple[ErrorCode, str]:
    """The code and the message for `error`."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if type(error) is Invalid and error.field:
        return _BY_FIELD.get(error.field, ErrorCode.invalid_config), str(error)
    return error_code(error, Family.ADMIN), str(error)
