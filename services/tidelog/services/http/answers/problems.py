"""Answers a failed request with its problem (`wire.errors`), counts it by status and code, and logs a failure."""

from __future__ import annotations

import logging
import math
from collections import Counter
from http import HTTPStatus

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.http.front.request_context import context_of
from tidelog.services.peers.proof import PEER_HEADER
from tidelog.storage import errors
from tidelog.wire.errors import INTERNAL, PROBLEM_MEDIA, Problem, problem_of, refusal, retry_after_of

logger = logging.getLogger(__name__)


class ProblemAnswers:
    """Makes problems of errors. `counts`: how many, by status and code."""

    def __init__(self, counts: Counter[tuple[int, str]]) -> None:
        self._counts = counts

    def answer(self, request: Request, error: Exception) -> Response:
        """The answer to `request`, which failed with `error`."""
        problem = _problem_of(error)
        problem.request_id = context_of(request).request_id
        self._counts[problem.status, problem.code] += 1
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log_failure(request, problem, error)
        return Response(msgspec.json.encode(problem), problem.status, _headers(error, problem), PROBLEM_MEDIA)

    def install(self, app: FastAPI) -> None:
        """Make `app` answer every error that leaves one of its routes this way."""

        async def answer(request: Request, error: Exception) -> Response:
            return self.answer(request, error)

        for kind in (errors.TidelogError, HTTPException, Exception):
            app.add_exception_handler(kind, answer)


def _problem_of(error: Exception) -> Problem:
    """The router's own errors (404, 405) have no row in the table of errors."""
    if isinstance(error, HTTPException):
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return refusal(error.status_code, code, str(error.detail))
    return problem_of(error)


def _headers(error: Exception, problem: Problem) -> dict[str, str]:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    retry_after_s = retry_after_of(error)
    if retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(retry_after_s))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = PEER_HEADER
    return headers


def _log_failure(request: Request, problem: Problem, error: Exception) -> None:
    """Log at ERROR. A peer that sent a request to a broker that no longer leads the shard tries another broker, so that
    case is logged at DEBUG."""
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
