"""The errors of Kafka's REST interface: a status, a number and a sentence.

    {"error_code": 40401, "message": "topic 'web' does not exist"}

The first three digits of an `error_code` are the HTTP status. Numbers of three digits are those of HTTP itself. One
table maps Tidelog's errors to Confluent's numbers; `RestError` is for what only this interface knows. A read of a
partition without a leader is answered 404 (40404). A produce to it, or a call on a group without a coordinator, is
answered 503 (50302): programs send it again, and would take a 404 for the loss of the topic or the instance. All have
Retry-After.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from enum import IntEnum
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.front.request_context import context_of
from tidelog.storage import errors
from tidelog.wire import errors as wire_errors

logger = logging.getLogger(__name__)


class Code(IntEnum):
    """The numbers, by Confluent's names."""

    BAD_REQUEST = 400
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    REQUEST_TIMEOUT = 408
    TOO_LARGE = 413
    UNSUPPORTED_MEDIA_TYPE = 415
    UNPROCESSABLE = 422
    INTERNAL = 500
    KAFKA_BAD_REQUEST = 40002
    UNAUTHENTICATED = 40101
    FORBIDDEN = 40301
    TOPIC_NOT_FOUND = 40401
    PARTITION_NOT_FOUND = 40402
    INSTANCE_NOT_FOUND = 40403
    LEADER_NOT_AVAILABLE = 40404
    UNKNOWN_TOPIC_PARTITION = 40403
    FORMAT_MISMATCH = 40601
    ALREADY_SUBSCRIBED = 40901
    INSTANCE_EXISTS = 40902
    ILLEGAL_STATE = 40903
    CONSUMER_CONFIG = 42204
    SERIALIZATION = 42207
    KAFKA_ERROR = 50002
    KAFKA_RETRIABLE = 50003
    POOL_TIMEOUT = 50301
    BROKER_UNAVAILABLE = 50302

    @property
    def http_status(self) -> int:
        return self.value if self.value < 1000 else self.value // 100


class RestError(errors.Invalid):
    """A refusal of this interface with its `code`. It never leaves this room."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    error_code: int
    message: str


_CODES: tuple[tuple[type[errors.TidelogError], Code], ...] = (
    (wire_errors.Unreadable, Code.BAD_REQUEST),
    (wire_errors.NotAcceptable, Code.NOT_ACCEPTABLE),
    (wire_errors.HostRefused, Code.FORBIDDEN),
    (wire_errors.OriginRefused, Code.FORBIDDEN),
    (wire_errors.PeerUnproved, Code.UNAUTHENTICATED),
    (wire_errors.BodyTimeout, Code.REQUEST_TIMEOUT),
    (wire_errors.ClientGone, Code.BAD_REQUEST),
    (errors.OutOfRange, Code.KAFKA_BAD_REQUEST),
    (errors.TooLarge, Code.TOO_LARGE),
    (errors.UnsupportedMedia, Code.UNSUPPORTED_MEDIA_TYPE),
    (errors.Invalid, Code.UNPROCESSABLE),
    (errors.NoSuchObject, Code.KAFKA_RETRIABLE),
    (errors.UnknownMember, Code.INSTANCE_NOT_FOUND),
    (errors.NotFound, Code.TOPIC_NOT_FOUND),
    (errors.AlreadyExists, Code.KAFKA_BAD_REQUEST),
    (errors.Conflict, Code.ILLEGAL_STATE),
    (errors.GroupFull, Code.POOL_TIMEOUT),
    (errors.NotLeader, Code.LEADER_NOT_AVAILABLE),
    (errors.LeaderUnknown, Code.LEADER_NOT_AVAILABLE),
    (errors.Overloaded, Code.BROKER_UNAVAILABLE),
    (errors.Unavailable, Code.KAFKA_RETRIABLE),
    (errors.TidelogError, Code.KAFKA_ERROR),
)
"""From the most special class to the least."""


def code_of(error: Exception) -> Code:
    """The number for `error`; `INTERNAL` if it is not Tidelog's own."""
    if isinstance(error, RestError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)


def record_code_of(error: errors.TidelogError) -> Code:
    """The number for a record that is not stored: whether it may be sent again."""
    return Code.KAFKA_RETRIABLE if isinstance(error, errors.Unavailable | errors.Fenced) else Code.KAFKA_ERROR


def message_of(error: Exception) -> str:
    """The sentence for `error`. For an error that is not Tidelog's own it says only that the broker failed."""
    if isinstance(error, RestError):
        return str(error).encode("utf-8", "backslashreplace").decode()
    sentence = wire_errors.problem_of(error).detail
    if committed := getattr(error, "committed", ()):
        return f"{sentence}. In the log are the records for the partitions {', '.join(map(str, committed))}"
    return sentence


class RestErrorAnswers:
    """Makes the answers to failed requests of this interface. `counts`: how many, by status and code, beside those of
    the other interfaces."""

    def __init__(self, counts: Counter[tuple[int, str]]) -> None:
        self._counts = counts

    def answer(self, request: Request, error: Exception) -> Response:
        """The answer to `request`, which failed with `error`."""
        code = code_of(error)
        if code is Code.LEADER_NOT_AVAILABLE and not _reads_topics(request):
            code = Code.BROKER_UNAVAILABLE
        self._counts[code.http_status, str(code.value)] += 1
        if code.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log_failure(request, code, error)
        body = msgspec.json.encode(ErrorBody(code, message_of(error)))
        return Response(body, code.http_status, _headers(error), "application/json")


def _reads_topics(request: Request) -> bool:
    return request.scope["method"] == "GET" and not request.scope["path"].startswith("/consumers/")


def _headers(error: Exception) -> dict[str, str]:
    retry_after_s = wire_errors.retry_after_of(error) if not isinstance(error, RestError) else None
    return {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}


def _log_failure(request: Request, code: Code, error: Exception) -> None:
    fields = {
        "request_id": context_of(request).request_id,
        "method": request.method,
        "path": request.scope["path"],
        "error_code": code.value,
    }
    cause = error if code is Code.INTERNAL else None
    logger.error("a request failed: %s", error, extra={"fields": fields}, exc_info=cause)
