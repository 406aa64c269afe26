"""Errors as `application/problem+json` (RFC 9457): the one place that decides an HTTP status.

The table below is read from the most special class to the least. What a problem says beyond its `detail` are the
error's own attributes (`field`, `next_offset`, ...), so a program never has to read the sentence.

The errors that only HTTP knows are here as well: a body that cannot be read at all (`Unreadable`, where `Invalid` is
one that can be read and is not allowed), an answer nobody here can give (`NotAcceptable`), a body that came too
slowly (`BodyTimeout`), and a client that has left (`ClientGone`, whose answer nobody will see).
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidelog.storage import errors

PROBLEM_MEDIA = "application/problem+json"
RETRY_AFTER_S = 1.0
_EXTRA_FIELDS = (
    "field",
    "log_start_offset",
    "high_watermark",
    "limit_name",
    "limit_bytes",
    "known",
    "next_offset",
    "expected_sequence",
    "current_epoch",
    "committed",
)

logger = logging.getLogger(__name__)


class Unreadable(errors.Invalid):
    """A body or a parameter that cannot be read."""


class NotAcceptable(errors.UnsupportedMedia):
    """No media type of the request's Accept can be given; `known` lists those that can."""


class BodyTimeout(errors.TidelogError):
    """The body did not arrive within ``request.read.timeout.ms``."""


class ClientGone(errors.TidelogError):
    """The client closed the connection before it had its answer."""


@dataclass(frozen=True)
class Verdict:
    """How a kind of error is told."""

    status: int
    code: str


_VERDICTS: tuple[tuple[type[Exception], Verdict], ...] = (
    (Unreadable, Verdict(400, "invalid")),
    (NotAcceptable, Verdict(406, "not_acceptable")),
    (BodyTimeout, Verdict(408, "request_timeout")),
    (ClientGone, Verdict(400, "client_gone")),
    (errors.OutOfRange, Verdict(416, "out_of_range")),
    (errors.TooLarge, Verdict(413, "too_large")),
    (errors.UnsupportedMedia, Verdict(415, "unsupported_media_type")),
    (errors.Invalid, Verdict(422, "invalid")),
    (errors.NotFound, Verdict(404, "not_found")),
    (errors.AlreadyExists, Verdict(409, "already_exists")),
    (errors.OffsetConflict, Verdict(409, "offset_conflict")),
    (errors.SequenceConflict, Verdict(409, "sequence_conflict")),
    (errors.ProducerFenced, Verdict(409, "producer_fenced")),
    (errors.Conflict, Verdict(409, "conflict")),
    (errors.Fenced, Verdict(503, "not_leader")),
    (errors.Denied, Verdict(503, "denied")),
    (errors.Overloaded, Verdict(503, "overloaded")),
    (errors.Unavailable, Verdict(503, "unavailable")),
    (errors.Corrupt, Verdict(500, "corrupt")),
)
INTERNAL = Verdict(500, "internal")


@dataclass(frozen=True)
class Problem:
    """One refusal as HTTP tells it. `extra` are the members beyond those of RFC 9457 and `code`."""

    status: int
    code: str
    detail: str
    extra: dict[str, object] = field(default_factory=dict)
    retry_after_s: float | None = None

    def response(self) -> Response:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(math.ceil(self.retry_after_s))}
        return Response(self.body(), self.status, headers, media_type=PROBLEM_MEDIA)

    def body(self) -> bytes:
        members = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        return msgspec.json.encode(members | self.extra)


def verdict_on(error: type[Exception]) -> Verdict:
    """How errors of this class are told; `INTERNAL` if they are not Tidelog's own."""
    return next((verdict for kind, verdict in _VERDICTS if issubclass(error, kind)), INTERNAL)


def problem_of(error: Exception) -> Problem:
    """The problem that tells `error`; of an error that is not Tidelog's own only that it happened."""
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return Problem(error.status_code, code, str(error.detail))
    verdict = verdict_on(type(error))
    if verdict is INTERNAL:
        return Problem(500, INTERNAL.code, "the broker failed; its log has the cause")
    extra = {name: value for name in _EXTRA_FIELDS if (value := getattr(error, name, None)) is not None}
    if isinstance(error, errors.Corrupt):
        extra["object"] = error.name
    retry_after_s = getattr(error, "retry_after_s", RETRY_AFTER_S) if verdict.status == 503 else None
    return Problem(verdict.status, verdict.code, _printable(str(error)), extra, retry_after_s)


def _printable(text: str) -> str:
    """`text` as UTF-8 can carry it: half a surrogate pair may come in by a path."""
    return text.encode("utf-8", "backslashreplace").decode()


class ProblemTeller:
    """Tells errors as problems, and counts them by status and code."""

    def __init__(self, tally: Counter[tuple[int, str]]) -> None:
        self._tally = tally

    def tell(self, request: Request, error: Exception) -> Response:
        """The answer to `request`, which failed by `error`."""
        problem = problem_of(error)
        self._tally[problem.status, problem.code] += 1
        if problem.status >= 500:
            _log_failure(request, problem, error)
        response = problem.response()
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    def install(self, app: FastAPI) -> None:
        """Let every error that leaves a route of `app` be told so."""

        async def answer(request: Request, error: Exception) -> Response:
            return self.tell(request, error)

        for kind in (errors.TidelogError, HTTPException, Exception):
            app.add_exception_handler(kind, answer)


def _log_failure(request: Request, problem: Problem, error: Exception) -> None:
    fields = {"method": request.method, "path": request.url.path, "status": problem.status, "code": problem.code}
    cause = error if problem.code == INTERNAL.code else None
    logger.error("a request failed: %s", error, extra={"fields": fields}, exc_info=cause)
