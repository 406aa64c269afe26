"""Errors as `application/problem+json` (RFC 9457).

The status and the code are those of the table in `verdicts`. What a problem says beyond its `detail` are the error's
own attributes (`field`, `next_offset`, ...), so a program never has to read the sentence.
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

from tidelog.services.http.answers.verdicts import (
    EXTRA_FIELDS,
    INTERNAL,
    BodyTimeout,
    ClientGone,
    NotAcceptable,
    Unreadable,
    verdict_on,
)
from tidelog.services.http.front.request_context import context_of
from tidelog.services.peers.proof import PEER_HEADER
from tidelog.storage import errors

__all__ = ["BodyTimeout", "ClientGone", "NotAcceptable", "Problem", "ProblemTeller", "Unreadable", "problem_of"]

PROBLEM_MEDIA = "application/problem+json"
RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


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
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = PEER_HEADER
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


def problem_of(error: Exception) -> Problem:
    """The problem that tells `error`; of an error that is not Tidelog's own only that it happened."""
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return Problem(error.status_code, code, str(error.detail))
    verdict = verdict_on(type(error))
    if verdict is INTERNAL:
        return Problem(500, INTERNAL.code, "the broker failed; its log has the cause")
    extra = {name: value for name in EXTRA_FIELDS if (value := getattr(error, name, None)) is not None}
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
        problem.extra["request_id"] = context_of(request).request_id
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
    """An error for whoever runs the broker; but where a peer asked for a shard that has just moved, it looks again, and
    only what its client is told in the end is a failure."""
    level = logging.ERROR
    context = context_of(request)
    if context.from_peer and isinstance(error, errors.NotLeader | errors.LeaderUnknown):
        level = logging.DEBUG
    fields = {
        "request_id": context.request_id,
        "method": request.method,
        "path": request.scope["path"],
        "status": problem.status,
        "code": problem.code,
    }
    cause = error if problem.code == INTERNAL.code else None
    logger.log(level, "a request failed: %s", error, extra={"fields": fields}, exc_info=cause)
