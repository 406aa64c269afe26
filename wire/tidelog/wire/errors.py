"""The errors of the HTTP interface: one table, read forwards by a server and backwards by a client.

An error is answered as `application/problem+json` (RFC 9457). The table decides its status and its code. The members
beyond `detail` are the error's own attributes (`field`, `next_offset`, ...), so programs need not read the sentence.

    problem_of(error)                  the answer to a request that failed            (front doors)
    error_of_problem(problem, ...)     the error that an answer stands for            (peers)
    error_of_answer(status, ...)       the same for any answer, also that of a proxy  (client, Spark)

The table is read from the most special class to the least. Where two classes share a status and a code, an answer
stands for the later one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.storage import errors
from tidelog.wire.decoders import json_decoder

PROBLEM_MEDIA = "application/problem+json"
RETRY_AFTER_S = 1.0
"""For a 503 that does not say when to come back."""


class Unreadable(errors.Invalid):
    """A body or a parameter cannot be read. (`Invalid`: it was read and is not allowed.)"""


class NotAcceptable(errors.UnsupportedMedia):
    """The broker cannot answer in any media type of the request's Accept; `known` lists those that it can."""


class BodyTimeout(errors.TidelogError):
    """The body did not arrive within ``request.read.timeout.ms``."""


class ClientGone(errors.TidelogError):
    """The client closed the connection before it had its answer."""


class HostRefused(errors.TidelogError):
    """The request names this broker by a host name that is not allowed."""


class OriginRefused(errors.TidelogError):
    """A web page of an origin that is not allowed sent the request."""


class PeerUnproved(errors.TidelogError):
    """The request claims to come from a broker of this cluster and does not prove it."""


class ErrorMapping(NamedTuple):
    """`error` is answered with `status` and `code`. A client raises `read_as` for them, or `error` if that is None."""

    error: type[errors.TidelogError]
    status: int
    code: str
    read_as: type[errors.TidelogError] | None = None


ERRORS: tuple[ErrorMapping, ...] = (
    ErrorMapping(Unreadable, 400, "invalid"),
    ErrorMapping(NotAcceptable, 406, "not_acceptable"),
    ErrorMapping(HostRefused, 403, "host_not_allowed", errors.Denied),
    ErrorMapping(OriginRefused, 403, "origin_not_allowed", errors.Denied),
    ErrorMapping(PeerUnproved, 401, "peer_unproved", errors.Denied),
    ErrorMapping(BodyTimeout, 408, "request_timeout", errors.Unavailable),
    ErrorMapping(ClientGone, 400, "client_gone", errors.Unavailable),
    ErrorMapping(errors.OutOfRange, 416, "out_of_range"),
    ErrorMapping(errors.TooLarge, 413, "too_large"),
    ErrorMapping(errors.UnsupportedMedia, 415, "unsupported_media_type"),
    ErrorMapping(errors.Invalid, 422, "invalid"),
    ErrorMapping(errors.NoSuchObject, 503, "unavailable"),
    ErrorMapping(errors.UnknownMember, 404, "unknown_member"),
    ErrorMapping(errors.NotFound, 404, "not_found"),
    ErrorMapping(errors.AlreadyExists, 409, "already_exists"),
    ErrorMapping(errors.OffsetConflict, 409, "offset_conflict"),
    ErrorMapping(errors.SequenceConflict, 409, "sequence_conflict"),
    ErrorMapping(errors.ProducerFenced, 409, "producer_fenced"),
    ErrorMapping(errors.MemberFenced, 409, "member_fenced"),
    ErrorMapping(errors.StaleMemberEpoch, 409, "stale_member_epoch"),
    ErrorMapping(errors.InstanceInUse, 409, "instance_in_use"),
    ErrorMapping(errors.GroupNotEmpty, 409, "group_not_empty"),
    ErrorMapping(errors.WrongGroupKind, 409, "wrong_group_kind"),
    ErrorMapping(errors.MemberIdRequired, 409, "member_id_required"),
    ErrorMapping(errors.RebalanceInProgress, 409, "rebalance_in_progress"),
    ErrorMapping(errors.Conflict, 409, "conflict"),
    ErrorMapping(errors.Fenced, 503, "fenced"),
    ErrorMapping(errors.Denied, 503, "denied"),
    ErrorMapping(errors.GroupFull, 503, "group_full"),
    ErrorMapping(errors.NotLeader, 503, "not_leader"),
    ErrorMapping(errors.LeaderUnknown, 503, "leader_unknown"),
    ErrorMapping(errors.Overloaded, 503, "overloaded"),
    ErrorMapping(errors.Unavailable, 503, "unavailable"),
    ErrorMapping(errors.NewerFormat, 503, "newer_format"),
    ErrorMapping(errors.Corrupt, 500, "corrupt"),
)
INTERNAL = ErrorMapping(errors.TidelogError, 500, "internal", errors.Unavailable)
"""How an error that is not Tidelog's own is answered."""


class Problem(msgspec.Struct, kw_only=True):
    """The body of a refusal. Which members beyond the first five are there depends on `code`."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    code: str = ""
    field: str | UnsetType = UNSET
    record: int | UnsetType = UNSET
    log_start_offset: int | UnsetType = UNSET
    high_watermark: int | UnsetType = UNSET
    limit_name: str | UnsetType = UNSET
    limit_bytes: int | UnsetType = UNSET
    known: tuple[str, ...] | UnsetType = UNSET
    first_offset: int | UnsetType = UNSET
    next_offset: int | UnsetType = UNSET
    expected_sequence: int | UnsetType = UNSET
    current_epoch: int | UnsetType = UNSET
    member_id: str | UnsetType = UNSET
    committed: tuple[int, ...] | UnsetType = UNSET
    leader: str | UnsetType = UNSET
    object: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


_OWN_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "object", "request_id"})
_ATTRIBUTES = tuple(name for name in Problem.__struct_fields__ if name not in _OWN_MEMBERS)
"""Members that an error has as attributes of the same name."""
_BY_STATUS_AND_CODE = {(mapping.status, mapping.code): mapping for mapping in (*ERRORS, INTERNAL)}


def mapping_of(kind: type[Exception]) -> ErrorMapping:
    """The row for errors of class `kind`; `INTERNAL` if they are not Tidelog's own."""
    return next((mapping for mapping in ERRORS if issubclass(kind, mapping.error)), INTERNAL)


def problem_of(error: Exception) -> Problem:
    """The problem that answers `error`. For an error that is not Tidelog's own it says only that the broker failed."""
    mapping = mapping_of(type(error))
    if mapping is INTERNAL:
        return refusal(INTERNAL.status, INTERNAL.code, "the broker failed; its log has the cause")
    problem = refusal(mapping.status, mapping.code, _printable(str(error)))
    for name in _ATTRIBUTES:
        value = getattr(error, name, None)
        if value is not None:
            setattr(problem, name, value)
    if isinstance(error, errors.Corrupt):
        problem.object = error.name
    return problem


def refusal(status: int, code: str, detail: str) -> Problem:
    """A problem with these members and the title of `status`."""
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, code=code)


def retry_after_of(error: Exception) -> float | None:
    """Seconds for the Retry-After header of the answer to `error`; None if it has none."""
    if mapping_of(type(error)).status != HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    return float(getattr(error, "retry_after_s", RETRY_AFTER_S))


def read_problem(body: bytes) -> Problem:
    """The problem in the body of an answer; an empty one if it holds none, as a proxy's page does."""
    try:
        return json_decoder(Problem, strict=False).decode(body)
    except msgspec.MsgspecError:
        return Problem()


def error_of_problem(status: int, problem: Problem, retry_after_s: float) -> errors.TidelogError | None:
    """The error that an answer of `status` with `problem` stands for; None if the table has no such row."""
    mapping = _BY_STATUS_AND_CODE.get((status, problem.code))
    if mapping is None:
        return None
    kind = mapping.read_as or mapping.error
    if kind is errors.Corrupt:
        return _corrupt(problem)
    try:
        error = kind(problem.detail, **_arguments(kind, problem, retry_after_s))
    except TypeError:
        return errors.Unavailable(f"the answer {problem.code} lacks a member that it must have: {problem.detail}")
    if isinstance(error, errors.Fenced | errors.Denied | errors.Unavailable) and problem.committed is not UNSET:
        error.committed = problem.committed
    return error


def error_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> errors.TidelogError:
    """The error that an answer of `status` (400 and above) stands for. If the table has no such row, as for the page of
    a proxy, the status alone decides."""
    problem, wait_s = read_problem(body), retry_after_s(headers)
    text = problem.detail or problem.title or f"the broker answered {status}"
    return error_of_problem(status, problem, wait_s) or _error_of_status(status, text, wait_s)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of the Retry-After header; `RETRY_AFTER_S` if there is none that is a number."""
    try:
        return max(0.0, float(headers.get("retry-after", headers.get("Retry-After", RETRY_AFTER_S))))
    except ValueError:
        return RETRY_AFTER_S


def _error_of_status(status: int, text: str, retry_after_s: float) -> errors.TidelogError:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return errors.Denied(text)
    if status == HTTPStatus.NOT_FOUND:
        return errors.NotFound(text)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return errors.Overloaded(text, retry_after_s=retry_after_s)
    return errors.Unavailable(text) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else errors.Invalid(text)


def _corrupt(problem: Problem) -> errors.Corrupt:
    """With the offsets that are lost, if the problem has them."""
    name = problem.object or "an object"
    reason = problem.detail.removeprefix(f"{name}: ")
    if problem.first_offset is UNSET or problem.next_offset is UNSET:
        return errors.Corrupt(name, reason)
    return errors.RecordsLost(name, reason, first_offset=problem.first_offset, next_offset=problem.next_offset)


def _arguments(kind: type[Exception], problem: Problem, retry_after_s: float) -> dict[str, Any]:
    """The members of `problem` that `kind` is made with: its keyword arguments have their names."""
    made: Any = kind  # mypy refuses the __init__ of a class object
    members = {name: getattr(problem, name) for name in _ATTRIBUTES} | {"retry_after_s": retry_after_s}
    names = (p.name for p in inspect.signature(made.__init__).parameters.values() if p.kind is p.KEYWORD_ONLY)
    return {name: members[name] for name in names if members.get(name, UNSET) is not UNSET}


def _printable(text: str) -> str:
    """`text` without half surrogate pairs, which a path can bring in and UTF-8 cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()
