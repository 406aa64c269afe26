"""Faults of a cluster. A fault begins, lasts, and ends; afterwards the cluster's processes and links are as before."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from infra.cluster.process import ServiceProcess
from tests.chaos.network import Condition
from tests.chaos.world import World

READY_S_MAX = 90.0
FIRST_ALONE = 0.3
"""The share of the first fault's time after which an overlapping fault begins."""


class Fault(Protocol):
    """`begin` returns when the fault is in force, `end` when it is over. `duration_s` is the time between them."""

    @property
    def duration_s(self) -> float: ...

    def begin(self, world: World) -> None: ...

    def end(self, world: World) -> None: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Calm:
    """No fault, for so long that the previous fault excuses nothing any more. So a failure fails the run."""

    duration_s: float

    def begin(self, world: World) -> None:
        """Nothing to begin."""

    def end(self, world: World) -> None:
        """Nothing to end."""

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
    """SIGSTOP: a process stands still and later continues as if nothing had happened."""

    name: str
    duration_s: float

    def begin(self, world: World) -> None:
        world.cluster[self.name].pause()

    def end(self, world: World) -> None:
        world.cluster[self.name].resume()

    def __str__(self) -> str:
        return f"pause {self.name}"


@dataclass(frozen=True)
class Restart:
    """SIGTERM to one broker after the other; each is started again before the next."""

    names: Sequence[str]
    duration_s: float = 0.0

    def begin(self, world: World) -> None:
        for name in self.names:
            broker = world.cluster[name]
            code = broker.stop()
            assert code == 0, f"{broker.service.name} ended with {code}:\n{broker.log_tail()}"
            _start_again([broker])

    def end(self, world: World) -> None:
        """It was over when `begin` returned."""

    def __str__(self) -> str:
        return f"restart {', '.join(self.names)}"


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
class ClockStep:
    """The wall clock of a broker is wrong by `seconds`, forward or back, and right again at the end."""

    name: str
    seconds: float
    duration_s: float

    def begin(self, world: World) -> None:
        world.step_clock(self.name, self.seconds)

    def end(self, world: World) -> None:
        world.step_clock(self.name, 0.0)

    def __str__(self) -> str:
        return f"clock of {self.name} stepped by {self.seconds:+.0f} s"


@dataclass(frozen=True)
class Drain:
    """An operator drains one broker, and puts it back at the end."""

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
    """Every node of etcd loses all its data. Brokers keep the shards they lead, until an operator recovers the
    cluster."""

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


Overlapping = Kill | Pause | Disturb | ClockStep
"""Faults that may overlap with another fault."""


def touched(fault: Overlapping) -> frozenset[str]:
    """The processes or links that a fault changes."""
    match fault:
        case Kill():
            return frozenset(fault.names)
        case Disturb():
            return frozenset(fault.links)
        case Pause() | ClockStep():
            return frozenset({fault.name})


@dataclass(frozen=True)
class Overlap:
    """Two faults; the second begins while the first is in force. They hit different things. They end in the order of
    dependencies: links first, then the store and etcd, then brokers."""

    first: Overlapping
    second: Overlapping

    @property
    def duration_s(self) -> float:
        return max(self.first.duration_s, self.second.duration_s)

    def begin(self, world: World) -> None:
        self.first.begin(world)
        threading.Event().wait(FIRST_ALONE * self.first.duration_s)
        self.second.begin(world)

    def end(self, world: World) -> None:
        for fault in sorted((self.first, self.second), key=_end_order):
            fault.end(world)

    def __str__(self) -> str:
        return f"{self.first}; meanwhile {self.second}"


def _end_order(fault: Overlapping) -> int:
    if not isinstance(fault, Kill):
        return 0
    return 2 if any(name.startswith("broker") for name in fault.names) else 1


def _start_again(processes: Sequence[ServiceProcess]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.await_healthy(READY_S_MAX)
