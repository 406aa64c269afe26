"""The kinds of faults that the schedule draws, with the broker, node or link that each hits.

A single broker gets no fault that needs etcd or several brokers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from infra.cluster.topology import Shape
from tests.chaos.faults import (
    Calm,
    ClockStep,
    Disturb,
    Drain,
    Fault,
    Kill,
    Overlap,
    Overlapping,
    Pause,
    Restart,
    WipeEtcd,
    touched,
)
from tests.chaos.network import Condition
from tests.chaos.world import GRACE_S, LEASE_S, PEERS, STORE, client_links, link

CLOCK_STEP_S_MAX = 600.0
OVERLAPPING_S_MAX = 30.0
"""Faults that last longer are not drawn for a pair."""


class Drawn:
    """The seed's choices for one fault. `lasting`: the part of the range of durations that is used, from its
    beginning."""

    def __init__(self, draw: random.Random, shape: Shape, lasting: float = 1.0) -> None:
        self._draw = draw
        self._lasting = lasting
        self.shape = shape

    def broker(self) -> str:
        return self._draw.choice(self.shape.broker_names)

    def etcd(self) -> str:
        return self._draw.choice(self.shape.etcd_names)

    def seconds(self, low: float, high: float) -> float:
        """A duration."""
        return self._draw.uniform(low, low + self._lasting * (high - low))

    def between(self, low: float, high: float) -> float:
        return self._draw.uniform(low, high)

    def some_brokers(self) -> Sequence[str]:
        """One broker, or all."""
        return (self.broker(),) if self._draw.random() < 0.5 else self.shape.broker_names

    def store_links(self) -> Sequence[str]:
        return [link(broker, STORE) for broker in self.some_brokers()]

    def client_links(self) -> Sequence[str]:
        """Those of all clients of one broker."""
        return client_links(self.broker())

    def etcd_links(self, brokers: Sequence[str]) -> Sequence[str]:
        return [link(broker, etcd) for broker in brokers for etcd in self.shape.etcd_names]

    def pair(self, kinds: Mapping[str, Kind]) -> Overlap:
        """Two faults that touch different things."""
        first = self._overlapping(kinds)
        while True:
            second = self._overlapping(kinds)
            if not touched(first) & touched(second):
                return Overlap(first, second)

    def _overlapping(self, kinds: Mapping[str, Kind]) -> Overlapping:
        while True:
            fault = kinds[self._draw.choice(list(kinds))](self)
            if isinstance(fault, Overlapping) and fault.duration_s <= OVERLAPPING_S_MAX:
                return fault


Kind = Callable[[Drawn], Fault]

ALONE: Mapping[str, Kind] = {
    "broker killed": lambda drawn: Kill((drawn.broker(),), drawn.seconds(0, 8)),
    "broker paused": lambda drawn: Pause(drawn.broker(), drawn.seconds(1.2, 3) * LEASE_S),
    "rolling restart": lambda drawn: Restart(drawn.shape.broker_names),
    "store refuses connections": lambda drawn: Disturb(drawn.store_links(), Condition.REFUSED, drawn.seconds(1, 8)),
    "store unreachable": lambda drawn: Disturb(drawn.store_links(), Condition.SILENT, drawn.seconds(1, 12)),
    "store's answers lost": lambda drawn: Disturb(drawn.store_links(), Condition.DEAF, drawn.seconds(1, 5)),
    "store answers 503": lambda drawn: Disturb(drawn.store_links(), Condition.FAILING, drawn.seconds(1, 6)),
    "store slow": lambda drawn: Disturb(
        drawn.store_links(), Condition.OPEN, drawn.seconds(3, 8), drawn.between(0.05, 0.4)
    ),
    "clients cut off": lambda drawn: Disturb(drawn.client_links(), Condition.SILENT, drawn.seconds(1, 8)),
    "clients' answers lost": lambda drawn: Disturb(drawn.client_links(), Condition.DEAF, drawn.seconds(1, 5)),
    "broker paused beyond the grace": lambda drawn: Pause(drawn.broker(), drawn.seconds(1.05, 1.2) * GRACE_S),
    "store killed": lambda drawn: Kill((STORE,), drawn.seconds(0, 10)),
    "clock stepped": lambda drawn: ClockStep(
        drawn.broker(), drawn.between(-CLOCK_STEP_S_MAX, CLOCK_STEP_S_MAX), drawn.seconds(3, 12)
    ),
    "calm weather": lambda drawn: Calm(drawn.seconds(10, 20)),
}
"""Faults of one broker and its store."""

TOGETHER: Mapping[str, Kind] = {
    "broker restarted": lambda drawn: Restart((drawn.broker(),)),
    "two brokers killed": lambda drawn: Kill(drawn.shape.broker_names[:2], drawn.seconds(0, 8)),
    "all brokers killed": lambda drawn: Kill(drawn.shape.broker_names, drawn.seconds(0, 3)),
    "etcd node killed": lambda drawn: Kill((drawn.etcd(),), drawn.seconds(2, 10)),
    "etcd node paused": lambda drawn: Pause(drawn.etcd(), drawn.seconds(2, 10)),
    "etcd down": lambda drawn: Kill(drawn.shape.etcd_names, drawn.seconds(20, 60)),
    "broker cut off from etcd": lambda drawn: Disturb(
        drawn.etcd_links([drawn.broker()]), Condition.SILENT, drawn.seconds(1.5, 4) * LEASE_S
    ),
    "etcd refuses connections": lambda drawn: Disturb(
        drawn.etcd_links(drawn.some_brokers()), Condition.REFUSED, drawn.seconds(1, 3) * LEASE_S
    ),
    "etcd slow": lambda drawn: Disturb(
        drawn.etcd_links(drawn.shape.broker_names), Condition.OPEN, drawn.seconds(3, 8), drawn.between(0.1, 0.8)
    ),
    "peers cut off": lambda drawn: Disturb([link(PEERS, drawn.broker())], Condition.SILENT, drawn.seconds(2, 10)),
    "peers' answers lost": lambda drawn: Disturb([link(PEERS, drawn.broker())], Condition.DEAF, drawn.seconds(1, 5)),
    "etcd wiped": lambda drawn: WipeEtcd(drawn.seconds(2, 12)),
    "broker drained": lambda drawn: Drain(drawn.broker(), drawn.seconds(2, 8)),
}
"""Faults that need several brokers and etcd."""


def kinds_for(shape: Shape) -> Mapping[str, Kind]:
    """All faults for a cluster of that shape."""
    single = {**ALONE, **TOGETHER} if shape.etcd_nodes else ALONE
    return {**single, "two faults at once": lambda drawn: drawn.pair(single)}
