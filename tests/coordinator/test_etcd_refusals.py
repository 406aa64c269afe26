"""The meaning of etcd's codes and messages, one by one; the messages are copied from etcd's `rpctypes`."""

from __future__ import annotations

import pytest

from tidelog.coordinator.etcd.refusals import Verdict, refusal_of
from tidelog.coordinator.kv.key_value import Compacted, LeaseLost
from tidelog.storage.errors import AlreadyExists, Denied, Invalid, Overloaded, TidelogError, Unavailable

MEANINGS = [
    ("UNAVAILABLE", "failed to connect to all addresses; last error: ...", Verdict.NOT_TAKEN, Unavailable),
    ("UNAVAILABLE", "DNS resolution failed for etcd:2379", Verdict.NOT_TAKEN, Unavailable),
    ("UNAVAILABLE", "etcdserver: no leader", Verdict.NOT_TAKEN, Unavailable),
    ("UNAVAILABLE", "etcdserver: leader changed", Verdict.UNKNOWN, Unavailable),
    ("UNAVAILABLE", "etcdserver: request timed out", Verdict.UNKNOWN, Unavailable),
    ("UNAVAILABLE", "Socket closed", Verdict.UNKNOWN, Unavailable),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", Verdict.UNKNOWN, Unavailable),
    ("INTERNAL", "RST_STREAM", Verdict.UNKNOWN, Unavailable),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", Verdict.TOKEN_REFUSED, Denied),
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Verdict.TOKEN_REFUSED, Denied),
    ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", Verdict.FINAL, Denied),
    ("INVALID_ARGUMENT", "etcdserver: user name is empty", Verdict.FINAL, Denied),
    ("PERMISSION_DENIED", "etcdserver: permission denied", Verdict.FINAL, Denied),
    ("NOT_FOUND", "etcdserver: requested lease not found", Verdict.FINAL, LeaseLost),
    ("FAILED_PRECONDITION", "etcdserver: lease already exists", Verdict.FINAL, AlreadyExists),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Verdict.FINAL, Compacted),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", Verdict.FINAL, Compacted),
    ("OUT_OF_RANGE", "etcdserver: too large lease TTL", Verdict.FINAL, Invalid),
    ("INVALID_ARGUMENT", "etcdserver: key is not provided", Verdict.FINAL, Invalid),
    ("INVALID_ARGUMENT", "etcdserver: request is too large", Verdict.FINAL, Invalid),
    ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (3 vs. 2)", Verdict.FINAL, Invalid),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Verdict.FINAL, Overloaded),
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Verdict.FINAL, Overloaded),
    ("FAILED_PRECONDITION", "etcdserver: not capable", Verdict.FINAL, Unavailable),
    ("DATA_LOSS", "etcdserver: corrupt cluster", Verdict.FINAL, Unavailable),
]


@pytest.mark.parametrize(("code", "details", "verdict", "kind"), MEANINGS)
def test_a_refusal_is_sorted_by_what_may_be_done_next(
    code: str, details: str, verdict: Verdict, kind: type[TidelogError]
) -> None:
    refused = refusal_of(code, details, "10.0.0.1:2379")
    assert (refused.verdict, type(refused.error)) == (verdict, kind)
    assert "10.0.0.1:2379" in str(refused.error)
    assert details in str(refused.error)
