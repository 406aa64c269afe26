"""A broker's refusals as the errors of `tidelog.storage.errors`: the other end of ``docs/http-api.md``, "Errors".

The `code` of a problem+json body decides; an answer without one (a proxy's, say) is judged by its status alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tidelog.storage.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    Denied,
    Fenced,
    Invalid,
    LeaderUnknown,
    NotFound,
    NotLeader,
    OffsetConflict,
    OutOfRange,
    Overloaded,
    ProducerFenced,
    RecordsLost,
    SequenceConflict,
    TidelogError,
    TooLarge,
    Unavailable,
    UnsupportedMedia,
)

RETRY_AFTER_S = 1.0
"""For a 503 that does not say when to come back."""


@dataclass(frozen=True)
class Problem:
    """The body of a refusal; which fields are there depends on `code`."""

    status: int = 0
    title: str = ""
    detail: str = ""
    code: str = ""
    field: str | None = None
    record: int | None = None
    known: tuple[str, ...] = ()
    first_offset: int | None = None
    next_offset: int = 0
    expected_sequence: int = 0
    current_epoch: int = 0
    limit_name: str = ""
    limit_bytes: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    object: str = ""
    leader: str = ""
    committed: tuple[int, ...] = ()


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> TidelogError:
    """The error that an answer of `status` (400 and above) stands for."""
    problem = _problem(body)
    text = problem.detail or problem.title or f"the broker answered {status}"
    wait_s = retry_after_s(headers)
    if problem.code == "overloaded" or status == 429:
        return Overloaded(text, retry_after_s=wait_s)
    if problem.code == "not_leader":
        return NotLeader(text, leader=problem.leader, retry_after_s=wait_s)
    if problem.code == "leader_unknown":
        return LeaderUnknown(text, retry_after_s=wait_s)
    error = _BY_CODE[problem.code](text, problem) if problem.code in _BY_CODE else _by_status(status, text)
    if isinstance(error, Fenced | Unavailable):
        error.committed = problem.committed
    return error


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After header; `RETRY_AFTER_S` where there is none that is a number."""
    try:
        return max(0.0, float(headers.get("retry-after", RETRY_AFTER_S)))
    except ValueError:
        return RETRY_AFTER_S


def _problem(body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem, strict=False)
    except msgspec.MsgspecError:
        return Problem()


def _corrupt(text: str, problem: Problem) -> Corrupt:
    """With the offsets that are lost, if it tells them."""
    name = problem.object or "an object"
    reason = text.removeprefix(f"{name}: ")
    if problem.first_offset is None:
        return Corrupt(name, reason)
    return RecordsLost(name, reason, first_offset=problem.first_offset, next_offset=problem.next_offset)


def _by_status(status: int, text: str) -> TidelogError:
    if status in (401, 403):
        return Denied(text)
    if status == 404:
        return NotFound(text)
    return Unavailable(text) if status >= 500 else Invalid(text)


_BY_CODE: Mapping[str, Callable[[str, Problem], TidelogError]] = {
    "invalid": lambda text, p: Invalid(text, field=p.field, record=p.record),
    "not_found": lambda text, _: NotFound(text),
    "method_not_allowed": lambda text, _: Invalid(text),
    "not_acceptable": lambda text, p: UnsupportedMedia(text, known=p.known),
    "unsupported_media_type": lambda text, p: UnsupportedMedia(text, known=p.known),
    "request_timeout": lambda text, _: Unavailable(text),
    "already_exists": lambda text, _: AlreadyExists(text),
    "offset_conflict": lambda text, p: OffsetConflict(text, next_offset=p.next_offset),
    "sequence_conflict": lambda text, p: SequenceConflict(text, expected_sequence=p.expected_sequence),
    "producer_fenced": lambda text, p: ProducerFenced(text, current_epoch=p.current_epoch),
    "too_large": lambda text, p: TooLarge(text, limit_name=p.limit_name, limit_bytes=p.limit_bytes, record=p.record),
    "out_of_range": lambda text, p: OutOfRange(
        text, log_start_offset=p.log_start_offset, high_watermark=p.high_watermark
    ),
    "conflict": lambda text, _: Conflict(text),
    "denied": lambda text, _: Denied(text),
    "fenced": lambda text, _: Fenced(text),
    "unavailable": lambda text, _: Unavailable(text),
    "corrupt": lambda text, p: _corrupt(text, p),
}
