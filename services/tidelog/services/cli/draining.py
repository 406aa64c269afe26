"""Waiting until a broker that drains leads nothing, with what is left on stderr."""

from __future__ import annotations

import sys

from tidelog.client import Admin
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import SystemClock, pause

LOOK_EVERY_S = 0.25


def await_drained(admin: Admin, broker_id: str, timeout_s: float) -> None:
    """Return once `broker_id` leads no shard. `Unavailable` after `timeout_s`, with how many it still leads."""
    clock = SystemClock()
    give_up_at_s = clock.monotonic() + timeout_s
    left, told = -1, -1
    while left:
        left = admin.cluster().cluster.led_by(broker_id)
        if left != told:
            print(f"{left} shards to go", file=sys.stderr)
            told = left
        if left and clock.monotonic() > give_up_at_s:
            raise Unavailable(f"{broker_id} still leads {left} shards after {timeout_s:g} s: it goes on draining")
        if left:
            pause(LOOK_EVERY_S)
