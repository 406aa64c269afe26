"""The meaning of etcd's codes and messages, one by one; the messages are copied from etcd's `rpctypes`."""

from __future__ import annotations

import pytest

from tidelog.coordinator.etcd.errors import Effect, failed_with
from tidelog.coordinator.kv.key_value import Compacted, LeaseLost
from tidelog.storage.errors import AlreadyExists, Denied, Invalid, Overloaded, TidelogError, Unavailable

MEANINGS = [
    ("UNAVAILABLE", "failed to connect to all addresses; last error: ...", Effect.NONE, Unavailable),
    ("UNAVAILABLE", "DNS resolution failed for etcd:2379", Effect.NONE, Unavailable),
    ("UNAVAILABLE", "etcdserver: no leader", Effect.NONE, Unavailable),
    ("UNAVAILABLE", "etcdserver: leader changed", Effect.UNKNOWN, Unavailable),
    ("UNAVAILABLE", "etcdserver: request timed out", Effect.UNKNOWN, Unavailable),
    ("UNAVAILABLE", "Socket closed", Effect.UNKNOWN, Unavailable),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", Effect.UNKNOWN, Unavailable),
    ("INTERNAL", "RST_STREAM", Effect.UNKNOWN, Unavailable),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", Effect.TOKEN_REJECTED, Denied),
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Effect.TOKEN_REJECTED, Denied),
    ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", Effect.FINAL, Denied),
    ("INVALID_ARGUMENT", "etcdserver: user name is empty", Effect.FINAL, Denied),
    ("PERMISSION_DENIED", "etcdserver: permission denied", Effect.FINAL, Denied),
    ("NOT_FOUND", "etcdserver: requested lease not found", Effect.FINAL, LeaseLost),
    ("FAILED_PRECONDITION", "etcdserver: lease already exists", Effect.FINAL, AlreadyExists),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Effect.FINAL, Compacted),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", Effect.FINAL, Compacted),
    ("OUT_OF_RANGE", "etcdserver: too large lease TTL", Effect.FINAL, Invalid),
    ("INVALID_ARGUMENT", "etcdserver: key is not provided", Effect.FINAL, Invalid),
    ("INVALID_ARGUMENT", "etcdserver: request is too large", Effect.FINAL, Invalid),
    ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (3 vs. 2)", Effect.FINAL, Invalid),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Effect.FINAL, Overloaded),
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Effect.FINAL, Overloaded),
    ("FAILED_PRECONDITION", "etcdserver: not capable", Effect.FINAL, Unavailable),
    ("DATA_LOSS", "etcdserver: corrupt cluster", Effect.FINAL, Unavailable),
]


@pytest.mark.parametrize(("code", "details", "effect", "kind"), MEANINGS)
def test_a_failure_is_sorted_by_what_may_be_done_next(
    code: str, details: str, effect: Effect, kind: type[TidelogError]
) -> None:
    failed = failed_with(code, details, "10.0.0.1:2379")
    assert (failed.effect, type(failed.error)) == (effect, kind)
    assert "10.0.0.1:2379" in str(failed.error)
    assert details in str(failed.error)
