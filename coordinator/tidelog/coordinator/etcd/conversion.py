"""Converts between the values of the key-value seam and etcd's messages. Pure.

Keys are UTF-8. A foreign key that is not UTF-8 is preserved (Python's "surrogateescape").
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.kv.key_value import (
    Compare,
    DeleteKey,
    GetKey,
    HasValue,
    KeyValue,
    Operation,
    PutKey,
    TransactionResult,
)
from tidelog.storage.errors import Invalid

_EVERYTHING = b"\0"
"""As the start of a range, the lowest key; as its end, "no end"."""


def key_bytes(key: str) -> bytes:
    """`key` as etcd stores it."""
    return key.encode("utf-8", "surrogateescape")


def start_of(prefix: str, after: str | None = None) -> bytes:
    """The lowest key with `prefix` that sorts after `after`."""
    start = key_bytes(prefix) or _EVERYTHING
    return start if after is None else max(start, key_bytes(after) + b"\0")


def end_of(prefix: str) -> bytes:
    """The lowest key above all keys with `prefix`: its last byte raised by one, after trailing 0xff are dropped."""
    kept = key_bytes(prefix).rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else _EVERYTHING


def item_of(found: pb.KeyValue) -> KeyValue:
    return KeyValue(
        key=found.key.decode("utf-8", "surrogateescape"),
        value=found.value,
        create_revision=found.create_revision,
        mod_revision=found.mod_revision,
        version=found.version,
        lease_id=found.lease,
    )


def transaction_of(
    compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> pb.TxnRequest:
    """The request. Raises `Invalid` if a key is changed twice, because etcd accepts some of these transactions."""
    for operations in (then, otherwise):
        changed = [operation.key for operation in operations if not isinstance(operation, GetKey)]
        if len(set(changed)) < len(changed):
            raise Invalid("a key may be changed once in a transaction")
    return pb.TxnRequest(
        compare=[_compare(each) for each in compares],
        success=[_operation(each) for each in then],
        failure=[_operation(each) for each in otherwise],
    )


def result_of(answer: pb.TxnResponse) -> TransactionResult:
    answers = (response.response_range for response in answer.responses if response.HasField("response_range"))
    found = [item_of(each.kvs[0]) if each.kvs else None for each in answers]
    return TransactionResult(answer.succeeded, answer.header.revision, found)


def _compare(compare: Compare) -> pb.Compare:
    key = key_bytes(compare.key)
    if isinstance(compare, HasValue):
        return pb.Compare(target=pb.Compare.VALUE, key=key, value=compare.value)
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=compare.mod_revision)


def _operation(operation: Operation) -> pb.RequestOp:
    key = key_bytes(operation.key)
    match operation:
        case PutKey(value=value, lease_id=lease_id):
            return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease_id))
        case DeleteKey():
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
        case GetKey():
            return pb.RequestOp(request_range=pb.RangeRequest(key=key))
