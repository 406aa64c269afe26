"""What a failed etcd call may have done, and the error that the caller gets. Only this module maps etcd's errors to
ours.

etcd's messages are part of its API and have not changed since version 3:
https://github.com/etcd-io/etcd/blob/main/api/v3rpc/rpctypes/error.go
"""

from __future__ import annotations

from enum import Enum, auto

import grpc
import grpc.aio

from tidelog.coordinator.kv.key_value import Compacted, LeaseLost
from tidelog.storage.errors import AlreadyExists, Denied, Invalid, Overloaded, TidelogError, Unavailable

BUSY_RETRY_S = 1.0


class Effect(Enum):
    """What a failed call may have done."""

    NONE = auto()
    """Certainly nothing: any call may be sent to another member."""
    TOKEN_REJECTED = auto()
    """Nothing; one more try with a new token may succeed."""
    UNKNOWN = auto()
    """Unknown: a write must not be repeated."""
    FINAL = auto()
    """The error is etcd's answer: another try would get the same."""


class CallFailed(Exception):
    """One try of a call failed. The caller gets `error` if there is no further try."""

    def __init__(self, effect: Effect, error: TidelogError) -> None:
        super().__init__(str(error))
        self.effect = effect
        self.error = error


_NEVER_SENT = ("failed to connect to all addresses", "dns resolution failed")
_CODES_OF_UNKNOWN_OUTCOME = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED"}
)


def call_failed(error: grpc.aio.AioRpcError, target: str, *, sent: bool = True) -> CallFailed:
    """The failure that `error`, from the member at `target`, means. `sent`: whether the request itself was sent, or
    only what comes before it."""
    failed = failed_with(error.code().name, error.details() or "no details", target)
    return failed if sent or failed.effect is not Effect.UNKNOWN else CallFailed(Effect.NONE, failed.error)


def failed_with(code: str, details: str, target: str) -> CallFailed:
    """The failure with the gRPC code named `code` and etcd's message `details`."""
    message, text = details.lower(), f"etcd at {target}: {details}"
    if "invalid auth token" in message or "revision of auth store is old" in message or code == "UNAUTHENTICATED":
        return CallFailed(Effect.TOKEN_REJECTED, Denied(text))
    if "etcdserver: no leader" in message or message.startswith(_NEVER_SENT):
        return CallFailed(Effect.NONE, Unavailable(text))
    if _is_denial(code, message):
        return CallFailed(Effect.FINAL, Denied(text))
    if code in _CODES_OF_UNKNOWN_OUTCOME:
        return CallFailed(Effect.UNKNOWN, Unavailable(f"{text} ({code})"))
    return CallFailed(Effect.FINAL, _answer(code, message, text))


def watch_cancelled(reason: str, target: str) -> CallFailed:
    """The failure of a watch that etcd cancelled. For an expired token, too, etcd says "permission denied"; so the
    watch tries once more with a new token."""
    failed = failed_with("UNAVAILABLE", reason or "watch cancelled", target)
    expired = "permission denied" in reason.lower()
    return CallFailed(Effect.TOKEN_REJECTED, failed.error) if expired else failed


def watch_compacted(wanted: int) -> CallFailed:
    """The failure of a watch from the revision `wanted`, which etcd no longer keeps."""
    message = f"changes from revision {wanted} on are no longer kept: read the current state, and watch from there"
    return CallFailed(Effect.FINAL, Compacted(message))


def no_answer(target: str, awaited: str, waited_s: float) -> CallFailed:
    """The failure of a member that did not answer before the request was sent."""
    return CallFailed(Effect.NONE, Unavailable(f"etcd at {target}: {awaited} in {waited_s:.1f} s"))


def store_closed() -> CallFailed:
    """The failure of a call on a store that was closed."""
    return CallFailed(Effect.FINAL, Unavailable("this key-value store is closed"))


def needs_no_token(error: grpc.aio.AioRpcError) -> bool:
    """Whether etcd refused to issue a token because it has no authentication."""
    return "authentication is not enabled" in (error.details() or "")


def _answer(code: str, message: str, text: str) -> TidelogError:
    if "lease not found" in message:
        return LeaseLost(text)
    if "lease already exists" in message:
        return AlreadyExists(text)
    if "has been compacted" in message or "is a future revision" in message:
        return Compacted(text)
    if code in ("INVALID_ARGUMENT", "OUT_OF_RANGE") or "larger than max" in message:
        return Invalid(text)
    if code == "RESOURCE_EXHAUSTED":
        return Overloaded(text, retry_after_s=BUSY_RETRY_S)
    return Unavailable(f"{text} ({code})")


def _is_denial(code: str, message: str) -> bool:
    denials = ("permission denied", "authentication failed", "user name is empty")
    return code == "PERMISSION_DENIED" or any(denial in message for denial in denials)
