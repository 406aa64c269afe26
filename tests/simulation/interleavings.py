"""Every interleaving of a commit, a takeover and a truncation, with the product's own classes, instead of random seeds.

Three tasks share a bucket, and each request is a step:

- a leader commits its next entry, and the first answer may be lost;
- a rival claims the log;
- a truncator raises the floor over everything and deletes it after the grace, as often as configured.

Only graces take time: the truncator's wait is the least that must pass, and more would only end the writers' trust
sooner. So both a commit that trusts the clock and one that reads the floor are explored.

A run is a list of choices. Coroutines cannot be copied, so each run starts from the beginning with its last choice
changed, until every choice was made at every step: a depth-first search. A run that reaches a known state ends there,
because its continuations are already explored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.simulation.light_codec import NO_RECORDS, LightWalCodec
from tests.simulation.network import Witnessed, objects_of
from tests.simulation.recording import recorded
from tests.simulation.scheduler import Process, ProcessClock, Scheduler
from tests.simulation.truth import Truth
from tests.simulation.violation import SHARD, Violation
from tests.storage.scripted_store import Answer, ScriptedObjectStore

from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import floor_trust_s
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry
from tidelog.storage.wal.wal_writer import WalWriter

GRACE_MS = 2_000


@dataclass(frozen=True)
class Plot:
    """The case to explore: the writers' class, whether the leader's first answer is lost, how often the log is
    truncated, how long the floor is trusted, and whether others may act between the requests of a look at it."""

    writer: type[WalWriter] = WalWriter
    answer_lost: bool = False
    truncations: int = 1
    trust_s: float = floor_trust_s(GRACE_MS / 1000)
    floor_in_steps: bool = True


@dataclass(frozen=True)
class Explored:
    """The number of states, and the first violation."""

    states: int
    violation: str | None = None


def explore(plot: Plot) -> Explored:
    """Make every run of `plot`, or stop at the first that breaks an invariant."""
    path: list[tuple[int, int]] | None = []
    seen: set[object] = set()
    while path is not None:
        try:
            taken = _Run(plot).follow([choice for choice, _ in path], seen)
        except Violation as violation:
            return Explored(len(seen), str(violation))
        path = _next_path(taken)
    return Explored(len(seen))


def _next_path(taken: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """The choices of the next run: the last choice that has an alternative takes it. Pairs of choice and width."""
    while taken:
        choice, width = taken.pop()
        if choice + 1 < width:
            return [*taken, (choice + 1, width)]
    return None


class _Run:
    """One run, from a log with one entry of the leader."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._scheduler = Scheduler(0)
        self._truth = Truth(LightWalCodec(), GRACE_MS, lambda: self._scheduler.now_ms)
        self._objects = MemoryObjectStore()
        self._bucket = Witnessed(self._objects, self._truth)
        self._cuts = 0
        self._turns: dict[str, asyncio.Future[None]] = {}
        self._parts = {"leader": self._commit, "rival": self._claim, "truncator": self._truncate}
        self._leader = self._writer("leader", 1)
        self._rival = self._writer("rival", 2)
        self._begun("claim", self._first_claim())

    def follow(self, choices: list[int], seen: set[object]) -> list[tuple[int, int]]:
        """Take `choices` and then always the first task, up to a state in `seen`. Return each choice and the number of
        alternatives."""
        parts = {name: self._begun(name, part()) for name, part in self._parts.items()}
        taken: list[tuple[int, int]] = []
        try:
            while waiting := [name for name, task in parts.items() if not task.done()]:
                choice = choices[len(taken)] if len(taken) < len(choices) else 0
                taken.append((choice, len(waiting)))
                self._advance(waiting[choice])
                left = sum(not task.done() for task in parts.values())
                if len(taken) >= len(choices) and not _is_new(self._state(left), seen):
                    return taken
        finally:
            self._scheduler.close_all()
        return taken

    def _begun(self, name: str, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """The task of `part`, in a process of its own, at its first turn."""
        task = self._scheduler.spawn(Process(name), name, part)
        self._run_on()
        return task

    def _advance(self, name: str) -> None:
        """Let the part go on to its next turn, or to its end."""
        self._turns.pop(name).set_result(None)
        self._run_on()

    def _run_on(self) -> None:
        while self._scheduler.step():
            pass

    async def _turn(self) -> None:
        """Suspend until the search chooses this part again."""
        assert self._scheduler.current is not None
        turn = self._turns[self._scheduler.current.name] = asyncio.get_running_loop().create_future()
        await turn

    def _state(self, tasks_left: int) -> object:
        """Everything that can still make a difference: the bucket, the truth, and the position of each task."""
        objects = tuple(sorted((key, data) for key, data in objects_of(self._objects).items()))
        log = tuple(header.entry_id for header in self._truth.log)
        writers = tuple(_standing(writer, store) for writer, store in (self._leader, self._rival))
        return tasks_left, self._cuts, self._scheduler.now_ms, self._truth.floor, log, objects, writers

    def _writer(self, name: str, seed: int) -> tuple[WalWriter, ScriptedObjectStore]:
        clock = ProcessClock(self._scheduler, Process(name))
        store = ScriptedObjectStore(self._bucket)
        writer_class = recorded(self._plot.writer, self._truth, self._scheduler)
        runtime = Runtime(_Impatient(clock), SeededEntropy(seed))
        log = ShardLog(store, SHARD, Runtime(clock, SeededEntropy(10 + seed)))
        floors = log if self._plot.floor_in_steps else _OneStepFloors(self._bucket, store, log)
        wal = Wal(store, SHARD, LightWalCodec(), floors)
        return writer_class(wal, runtime, name, floor_trust_s=self._plot.trust_s), store

    async def _first_claim(self) -> None:
        await self._leader[0].claim()

    async def _commit(self) -> None:
        writer, store = self._leader
        header = writer.next_header()
        if self._plot.answer_lost:
            store.answers.append(Answer(Unavailable("reset"), after_effect=True))
        self._let_others_go_first(store)
        try:
            await writer.commit(PreparedEntry(header, LightWalCodec().encode(header, NO_RECORDS)))
        except Fenced:
            return

    async def _claim(self) -> None:
        writer, store = self._rival
        self._let_others_go_first(store)
        await writer.claim()

    async def _truncate(self) -> None:
        """Raise the floor in one step, wait for the grace, delete in another step. The entries hold no records, so
        nothing must be archived."""
        log = ShardLog(self._bucket, SHARD, Runtime(ProcessClock(self._scheduler, Process("t")), SeededEntropy(9)))
        wal = Wal(self._bucket, SHARD, LightWalCodec(), log)
        for _ in range(self._plot.truncations):
            await self._turn()
            self._cuts += 1
            if self._truth.log:
                floor = Floor(len(self._truth.log), self._truth.log[-1].epoch)
                moved = ManifestChange(ChangeKind.ARCHIVE, floor=floor)
                await log.change([], lambda _, moved=moved: moved)
            await self._turn()
            self._cuts += 1
            self._scheduler.now_ms += GRACE_MS
            await wal.delete_below(self._truth.floor)

    def _let_others_go_first(self, store: ScriptedObjectStore) -> None:
        """From now on every request of `store` waits for a turn."""

        async def wait_for_turn() -> None:
            store.before = wait_for_turn
            await self._turn()

        store.before = wait_for_turn


class _OneStepFloors:
    """Looks at the floor in one step, so that longer cases can be explored."""

    def __init__(self, bucket: Witnessed, store: ScriptedObjectStore, log: ShardLog) -> None:
        self._log = ShardLog(bucket, SHARD, log._runtime)
        self._store = store

    async def floor(self) -> Floor:
        self._store.requests.append("floor")
        before, self._store.before = self._store.before, None
        if before is not None:
            await before()
        return await self._log.floor()


class _Impatient:
    """The clock of a writer whose waits take one step."""

    def __init__(self, clock: ProcessClock) -> None:
        self.monotonic: Callable[[], float] = clock.monotonic
        self.now_ms: Callable[[], int] = clock.now_ms

    async def sleep(self, seconds: float) -> None:
        """Waiting shows nothing that another task's turn would not show."""


def _is_new(state: object, seen: set[object]) -> bool:
    """Whether `state` is new; add it to `seen`."""
    before = len(seen)
    seen.add(state)
    return len(seen) > before


def _standing(writer: WalWriter, store: ScriptedObjectStore) -> object:
    """The position of a writer's state machine, including its search, and the request that waits for its turn."""
    search = repr([value for name, value in sorted(vars(writer._search).items()) if name != "_wal"])
    doubt = writer.in_doubt.entry_id if writer.in_doubt else None
    since_s = (writer._above_floor_s, writer._put_since_s)
    request = tuple(store.requests[-1:])
    floors = writer._wal._floors
    known = (floors._latest.version, floors._asked) if isinstance(floors, ShardLog) else None
    return known, writer.state, writer.epoch, writer.next_seq, doubt, search, since_s, request, len(store.answers)
