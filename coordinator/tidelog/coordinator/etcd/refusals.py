"""What a failed call means: gRPC's codes and etcd's sentences, sorted by what may be done next.

The one place where they become Tidelog's errors. etcd's sentences are part of its API and are as old as version 3:
https://github.com/etcd-io/etcd/blob/main/api/v3rpc/rpctypes/error.go
"""

from __future__ import annotations

from enum import Enum, auto

import grpc
import grpc.aio

from tidelog.coordinator.kv.key_value import Compacted, LeaseLost
from tidelog.storage.errors import AlreadyExists, Denied, Invalid, Overloaded, TidelogError, Unavailable

BUSY_RETRY_S = 1.0


class Verdict(Enum):
    """What a refusal leaves open."""

    NOT_TAKEN = auto()
    """Certainly nothing was done: any call may be tried elsewhere."""
    TOKEN_REFUSED = auto()
    """Nothing was done: get another token, once."""
    UNKNOWN = auto()
    """Done or not done: a write is not repeated."""
    FINAL = auto()
    """An answer."""


class Refusal(Exception):
    """A try that failed; `error` is what the caller gets if it was the last."""

    def __init__(self, verdict: Verdict, error: TidelogError) -> None:
        super().__init__(str(error))
        self.verdict = verdict
        self.error = error


_NEVER_SENT = ("failed to connect to all addresses", "dns resolution failed")
_CODES_OF_UNKNOWN_OUTCOME = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED"}
)


def refusal(error: grpc.aio.AioRpcError, target: str) -> Refusal:
    """What `error`, from the member at `target`, means."""
    return refusal_of(error.code().name, error.details() or "no details", target)


def refusal_of(code: str, details: str, target: str) -> Refusal:
    """The same, by the code's name."""
    sentence, text = details.lower(), f"etcd at {target}: {details}"
    if "invalid auth token" in sentence or "revision of auth store is old" in sentence or code == "UNAUTHENTICATED":
        return Refusal(Verdict.TOKEN_REFUSED, Denied(text))
    if "etcdserver: no leader" in sentence or sentence.startswith(_NEVER_SENT):
        return Refusal(Verdict.NOT_TAKEN, Unavailable(text))
    if _is_denial(code, sentence):
        return Refusal(Verdict.FINAL, Denied(text))
    if code in _CODES_OF_UNKNOWN_OUTCOME:
        return Refusal(Verdict.UNKNOWN, Unavailable(f"{text} ({code})"))
    return Refusal(Verdict.FINAL, _answer(code, sentence, text))


def _answer(code: str, sentence: str, text: str) -> TidelogError:
    if "lease not found" in sentence:
        return LeaseLost(text)
    if "lease already exists" in sentence:
        return AlreadyExists(text)
    if "has been compacted" in sentence or "is a future revision" in sentence:
        return Compacted(text, oldest_revision=0)  # etcd does not say which; the store finds out
    if code in ("INVALID_ARGUMENT", "OUT_OF_RANGE") or "larger than max" in sentence:
        return Invalid(text)
    if code == "RESOURCE_EXHAUSTED":
        return Overloaded(text, retry_after_s=BUSY_RETRY_S)
    return Unavailable(f"{text} ({code})")


def _is_denial(code: str, sentence: str) -> bool:
    return (
        code == "PERMISSION_DENIED"
        or "permission denied" in sentence
        or "authentication failed" in sentence
        or "user name is empty" in sentence
    )
