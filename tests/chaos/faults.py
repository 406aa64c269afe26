"""What is done to a cluster. A fault begins, lasts, and ends; afterwards everything is as it was before.

Kinds are drawn by the schedule with the broker or node they strike. Those that need etcd or several brokers are not
drawn for a broker alone.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.cluster.process import ServiceProcess
from infra.cluster.topology import Shape
from tests.chaos.network import Condition
from tests.chaos.world import CLIENTS, LEASE_S, PEERS, STORE, World, link

READY_S_MAX = 90.0


class Fault(Protocol):
    """`begin` and `end` return once it is in force, and once it is over. `duration_s` lies between them."""

    @property
    def duration_s(self) -> float: ...

    def begin(self, world: World) -> None: ...

    def end(self, world: World) -> None: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Calm:
    """Nothing is done, for long enough that the last fault excuses nothing any more. So a failure breaks the run."""

    duration_s: float

    def begin(self, world: World) -> None:
        """There is nothing to begin."""

    def end(self, world: World) -> None:
        """There is nothing to end."""

    def __str__(self) -> str:
        return "calm weather"


@dataclass(frozen=True)
class Kill:
    """kill -9 of processes, which start again at the end."""

    names: Sequence[str]
    duration_s: float

    def begin(self, world: World) -> None:
        for name in self.names:
            world.cluster[name].kill()

    def end(self, world: World) -> None:
        _start_again([world.cluster[name] for name in self.names])

    def __str__(self) -> str:
        return f"kill -9 {', '.join(self.names)}"


@dataclass(frozen=True)
class Pause:
    """SIGSTOP: a process that stands still and then goes on as if nothing had been."""

    name: str
    duration_s: float

    def begin(self, world: World) -> None:
        world.cluster[self.name].pause()

    def end(self, world: World) -> None:
        world.cluster[self.name].resume()

    def __str__(self) -> str:
        return f"pause {self.name}"


@dataclass(frozen=True)
class RollingRestart:
    """SIGTERM to one broker after the other, each started again before the next."""

    duration_s: float = 0.0

    def begin(self, world: World) -> None:
        for broker in world.cluster.brokers:
            code = broker.stop()
            assert code == 0, f"{broker.service.name} ended with {code}:\n{broker.log_tail()}"
            _start_again([broker])

    def end(self, world: World) -> None:
        """It was over when it had begun."""

    def __str__(self) -> str:
        return "rolling restart"


@dataclass(frozen=True)
class Disturb:
    """Links in a condition other than open."""

    links: Sequence[str]
    condition: Condition
    duration_s: float
    delay_s: float = 0.0

    def begin(self, world: World) -> None:
        for name in self.links:
            world.network.set(name, self.condition, self.delay_s)

    def end(self, world: World) -> None:
        for name in self.links:
            world.network.set(name, Condition.OPEN)

    def __str__(self) -> str:
        told = f"{self.delay_s:.2f} s late" if self.delay_s else self.condition.value
        shown = ", ".join(self.links[:3]) + (f" and {len(self.links) - 3} more" if len(self.links) > 3 else "")
        return f"{shown} {told}"


@dataclass(frozen=True)
class Drain:
    """One broker is told to lead nothing, by the command that operators use, and may again at the end."""

    name: str
    duration_s: float

    def begin(self, world: World) -> None:
        world.cluster.tidelog("cluster", "drain", self.name, broker=self._other(world))

    def end(self, world: World) -> None:
        world.cluster.tidelog("cluster", "drain", self.name, "--undo", broker=self._other(world))

    def _other(self, world: World) -> str:
        return next(name for name in world.shape.broker_names if name != self.name)

    def __str__(self) -> str:
        return f"drain {self.name}"


@dataclass(frozen=True)
class WipeEtcd:
    """Every node of etcd loses all it had. Brokers keep what they lead, until an operator recovers the cluster."""

    duration_s: float

    def begin(self, world: World) -> None:
        nodes = world.cluster.etcd_nodes
        for node in nodes:
            node.kill()
        for node in nodes:
            shutil.rmtree(node.service.environment["ETCD_DATA_DIR"])
        _start_again(nodes)

    def end(self, world: World) -> None:
        world.cluster.tidelog("cluster", "recover", broker=world.shape.broker_names[0], as_broker=True)

    def __str__(self) -> str:
        return "wipe etcd, then tidelog cluster recover"


def _start_again(processes: Sequence[ServiceProcess]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.await_healthy(READY_S_MAX)


class Drawn:
    """The seed's choices for one fault."""

    def __init__(self, draw: random.Random, shape: Shape) -> None:
        self._draw = draw
        self.shape = shape

    def broker(self) -> str:
        return self._draw.choice(self.shape.broker_names)

    def etcd(self) -> str:
        return self._draw.choice(self.shape.etcd_names)

    def seconds(self, low: float, high: float) -> float:
        return self._draw.uniform(low, high)

    def some_brokers(self) -> Sequence[str]:
        """One of them, or all."""
        return (self.broker(),) if self._draw.random() < 0.5 else self.shape.broker_names

    def store_links(self) -> Sequence[str]:
        return [link(broker, STORE) for broker in self.some_brokers()]

    def etcd_links(self, brokers: Sequence[str]) -> Sequence[str]:
        return [link(broker, etcd) for broker in brokers for etcd in self.shape.etcd_names]


Kind = Callable[[Drawn], Fault]

ALONE: Mapping[str, Kind] = {
    "broker killed": lambda drawn: Kill((drawn.broker(),), drawn.seconds(0, 8)),
    "broker paused": lambda drawn: Pause(drawn.broker(), drawn.seconds(1.2, 3) * LEASE_S),
    "rolling restart": lambda drawn: RollingRestart(),
    "store refuses connections": lambda drawn: Disturb(drawn.store_links(), Condition.REFUSED, drawn.seconds(1, 8)),
    "store unreachable": lambda drawn: Disturb(drawn.store_links(), Condition.SILENT, drawn.seconds(1, 12)),
    "store's answers lost": lambda drawn: Disturb(drawn.store_links(), Condition.DEAF, drawn.seconds(1, 5)),
    "store answers 503": lambda drawn: Disturb(drawn.store_links(), Condition.FAILING, drawn.seconds(1, 6)),
    "store slow": lambda drawn: Disturb(
        drawn.store_links(), Condition.OPEN, drawn.seconds(3, 8), drawn.seconds(0.05, 0.4)
    ),
    "clients cut off": lambda drawn: Disturb([link(CLIENTS, drawn.broker())], Condition.SILENT, drawn.seconds(1, 8)),
    "clients' answers lost": lambda drawn: Disturb(
        [link(CLIENTS, drawn.broker())], Condition.DEAF, drawn.seconds(1, 5)
    ),
    "calm weather": lambda drawn: Calm(drawn.seconds(10, 20)),
}
"""What can be done to one broker and its store."""

TOGETHER: Mapping[str, Kind] = {
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
        drawn.etcd_links(drawn.shape.broker_names), Condition.OPEN, drawn.seconds(3, 8), drawn.seconds(0.1, 0.8)
    ),
    "peers cut off": lambda drawn: Disturb([link(PEERS, drawn.broker())], Condition.SILENT, drawn.seconds(2, 10)),
    "peers' answers lost": lambda drawn: Disturb([link(PEERS, drawn.broker())], Condition.DEAF, drawn.seconds(1, 5)),
    "etcd wiped": lambda drawn: WipeEtcd(drawn.seconds(2, 12)),
    "broker drained": lambda drawn: Drain(drawn.broker(), drawn.seconds(2, 8)),
}
"""What needs several brokers and etcd."""


def kinds_for(shape: Shape) -> Mapping[str, Kind]:
    """All that can be done to a cluster of that shape."""
    return {**ALONE, **TOGETHER} if shape.etcd_nodes else ALONE
