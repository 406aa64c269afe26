"""Hosts without records: they claim a log that is just a number, and one object watches all of them.

A log knows its highest epoch, like a WAL with its START entries. It refuses a claim at or below that epoch. From the
moment of a successful claim the earlier leader is fenced, whether or not it knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelog.storage.errors import Denied, Fenced, Unavailable
from tidelog.storage.runtime import Runtime


@dataclass(frozen=True)
class Told:
    """A call of leadership to a host."""

    at_s: float
    host: str
    what: str
    shard: int
    epoch: int = 0


@dataclass
class Logs:
    """The logs of all shards, and all calls so far. `violations`: two hosts had to lead a shard in one epoch; calls for
    one shard of a host overlapped; or a host could prove by its lease that it leads a shard while another broker's host
    began to (`proofs`, by host). `store_was_lost`: a loss of the store also loses epochs that were given out and not
    claimed; they are given out again, and the logs accept the first of two claims."""

    epochs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    leaders: dict[int, str] = field(default_factory=dict)
    history: list[Told] = field(default_factory=list)
    given: dict[tuple[int, int], str] = field(default_factory=dict)
    fenced: list[tuple[int, int]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    store_was_lost: bool = False
    proofs: dict[str, Callable[[int], bool]] = field(default_factory=dict)

    def claim(self, host: str, shard: int, epoch: int) -> None:
        if epoch <= self.epochs[shard]:
            self.fenced.append((shard, epoch))
            raise Fenced(f"the log of shard {shard} has seen epoch {self.epochs[shard]}")
        self._check_that_nobody_else_surely_leads(host, shard)
        self.epochs[shard] = epoch
        self.leaders[shard] = host

    def _check_that_nobody_else_surely_leads(self, host: str, shard: int) -> None:
        broker_id, _, _ = host.partition("/")
        for other, proves in self.proofs.items():
            if not other.startswith(f"{broker_id}/") and proves(shard):
                self.violations.append(f"{other} can prove that it leads shard {shard}, and {host} begins to")

    def told(self, told: Told) -> None:
        self.history.append(told)
        if told.what == "lead":
            place = (told.shard, told.epoch)
            if place in self.given and not self.store_was_lost:
                self.violations.append(f"{told} after {self.given[place]} was told the same")
            self.given[place] = told.host

    def asked(self, what: str) -> list[Told]:
        return [told for told in self.history if told.what == what]


class FakeHost:
    """Implements `ShardHost`. `claim_s` and `drain_s`: the duration of claims and releases. `failing`: shards that
    cannot be claimed, with `failure` as the reason. `defect`: an error that it must not raise."""

    def __init__(
        self, name: str, logs: Logs, runtime: Runtime, *, claim_s: float = 0.01, drain_s: float = 0.01
    ) -> None:
        self.name = name
        self.claim_s = claim_s
        self.drain_s = drain_s
        self.failing: set[int] = set()
        self.failure: type[Denied | Unavailable] = Unavailable
        self.defect: Exception | None = None
        self._logs = logs
        self._runtime = runtime
        self._led: dict[int, int] = {}
        self._on_the_move: set[int] = set()
        self._crashed = False

    async def lead(self, shard: int, epoch: int) -> None:
        await self._move("lead", shard, self.claim_s, epoch)
        if shard in self.failing or self._crashed:
            raise self.failure(f"the log of shard {shard} cannot be claimed")
        self._logs.claim(self.name, shard, epoch)
        self._led[shard] = epoch

    async def release(self, shard: int) -> None:
        await self._move("release", shard, self.drain_s, self._led.get(shard, 0))
        self._led.pop(shard, None)

    async def abandon(self, shard: int) -> None:
        self._led.pop(shard, None)
        await self._move("abandon", shard, 0.0)

    def led(self) -> Mapping[int, int]:
        if self.defect:
            raise self.defect
        return dict(self._led)

    def commits(self, shard: int) -> bool:
        """Whether a commit of this host to `shard` would succeed."""
        return shard in self._led and self._logs.epochs[shard] == self._led[shard]

    def crash(self) -> None:
        """The process is gone: further calls do nothing."""
        self._crashed = True
        self._led.clear()

    def fence(self, shard: int) -> None:
        """The host finds out that it no longer leads `shard`."""
        self._led.pop(shard)

    async def _move(self, what: str, shard: int, seconds: float, epoch: int = 0) -> None:
        if shard in self._on_the_move:
            self._logs.violations.append(f"{self.name}: {what} of shard {shard} during another call for it")
        self._on_the_move.add(shard)
        if not self._crashed:
            self._logs.told(Told(self._runtime.clock.monotonic(), self.name, what, shard, epoch))
        try:
            await self._runtime.clock.sleep(seconds)
        finally:
            self._on_the_move.discard(shard)
