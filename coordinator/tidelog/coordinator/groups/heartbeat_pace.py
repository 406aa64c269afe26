"""How often members send heartbeats: as often as their coordinator can afford.

A member learns of a new assignment by a heartbeat. So with few members they come often, and the partitions of a member
that died are read again soon; with many members all of them together send ``1000 / MS_PER_MEMBER`` a second.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.wire.groups import HeartbeatAnswer

INTERVAL_MS_MIN = 500
MS_PER_MEMBER = 4


def paced(answer: Any, members: int) -> Any:
    """`answer`; if it is that of a heartbeat, with an interval that suits a coordinator of so many `members`. The
    machine's own interval is the longest that the settings and the member's session allow."""
    if not isinstance(answer, HeartbeatAnswer):
        return answer
    interval_ms = max(INTERVAL_MS_MIN, members * MS_PER_MEMBER)
    if interval_ms >= answer.heartbeat_interval_ms:
        return answer
    return msgspec.structs.replace(answer, heartbeat_interval_ms=interval_ms)
