"""The operations that a client may carry out, as bits: all of them, since there are no ACLs. Each bit is the code of an
operation in Kafka's AclOperation."""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT = (
    1 << code for code in range(3, 13)
)
NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS = _CREATE | _CLUSTER | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT | _ALTER | _DESCRIBE
GROUP_OPERATIONS = _READ | _DESCRIBE | _DELETE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS


def if_asked(operations: int, is_asked: bool) -> int:
    return operations if is_asked else NOT_ASKED
