"""One run of the simulation: a seed makes a world, disturbs it, lets it recover, and checks the result.

First chaos: faults, stalls, crashes, rival leaders, for `weather.CHAOS_MS`. Then quiet: every batch must be
acknowledged, everything archived, and every reader at the end (the protocol is not only safe, it makes progress).
`Truth` checks every event of both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

from tests.simulation.archive_worker import GRACE_S, ArchiveWorker, WorkerClasses
from tests.simulation.batches import PARTITIONS, Batch
from tests.simulation.broker import Broker
from tests.simulation.lease_server import KnownLease, LeaseServer
from tests.simulation.network import Ambush, Travelling, Witnessed, objects_of
from tests.simulation.reader import Reader
from tests.simulation.recording import recorded, recorded_log
from tests.simulation.scheduler import Process, ProcessClock, Scheduler
from tests.simulation.truth import Truth
from tests.simulation.violation import SHARD, Violation
from tests.simulation.weather import CHAOS_MS, Weather, draw_weather
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.storage.backoff import Backoff
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.floor_trust import floor_trust_s
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_entry import WalHeader
from tidelog.storage.wal.wal_writer import WalWriter

BATCH_TIMEOUT_MS = 400
THINKING_MS_MAX = 500
QUIET_MS_MAX = 30_000
TRUST_S = floor_trust_s(GRACE_S)
WALL_BEGINS_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Cast:
    """The classes that run: the product's own, or mutations of them."""

    writer: type[WalWriter] = WalWriter
    worker: WorkerClasses = field(default_factory=WorkerClasses)
    shard_log: type[ShardLog] = ShardLog
    reader: type[Reader] = Reader
    floor_trust_s: float = TRUST_S
    manifest_trust_s: float = TRUST_S
    clocks_stop_when_stalled: bool = False
    weather: Callable[[int], Weather] = draw_weather


@dataclass
class Outcome:
    """The result of a run: how often each event happened, and the invariant that broke, if any."""

    seed: int
    seen: Counter[str]
    steps: int
    trace: list[str]
    violation: str | None = None


@dataclass
class _Producer:
    """One idempotent producer: its batch, and until when a broker has it."""

    name: str
    batches: list[Batch] = field(default_factory=list)
    taken_until_ms: int = 0


class World:
    """All state of one run."""

    def __init__(self, seed: int, cast: Cast, *, traced: bool = False) -> None:
        self.cast = cast
        self.codec = ParquetWalCodec()
        self.weather = weather = cast.weather(seed)
        self.scheduler = Scheduler(seed, traced=traced)
        self._draw = random.Random(f"world {seed}")
        self.truth = Truth(self.codec, int(GRACE_S * 1000), lambda: self.scheduler.now_ms)
        self.truth.archive.retention_bytes = self.weather.rules.retention_bytes
        self._writer_class = recorded(cast.writer, self.truth, self.scheduler)
        self._log_class = recorded_log(cast.shard_log, self.truth)
        self._objects = MemoryObjectStore(ProcessClock(self.scheduler, self.scheduler.network))
        runtime = self._runtime(self.scheduler.network)
        self._faulty = FaultyObjectStore(Witnessed(self._objects, self.truth), weather.faults, runtime)
        self._lease_server = LeaseServer(self.scheduler)
        self._lease_server.down_from_ms, self._lease_server.down_until_ms = self.weather.lease_server_down_ms
        self._broker_ambush = Ambush(
            self.scheduler, weather.broker_ambush, weather.broker_stall_ms, weather.broker_creates_stall
        )
        self._other_ambush = Ambush(self.scheduler, weather.other_ambush, weather.stall_ms)
        self._leader = ""
        self._started = 0
        self._readers: list[Reader] = []
        self._producers = [self._producer(n) for n in range(self.weather.producers)]
        self._starts: dict[Process, Callable[[], None]] = {}
        self._restarts: list[tuple[int, Callable[[], None]]] = []
        self._next_stall = self._interval(self.weather.stall_every_steps)
        self._next_crash = self._interval(self.weather.crash_every_steps)

    # ---- what brokers ask of the world

    def new_writer(self, wal: Wal, runtime: Runtime, name: str) -> WalWriter:
        """A writer of the cast's class that also reports what it does."""
        self._leader = name
        backoff = Backoff(first_s=0.004, max_s=0.05)
        return self._writer_class(wal, runtime, name, backoff=backoff, floor_trust_s=self.cast.floor_trust_s)

    def new_shard_log(self, store: ObjectStore, runtime: Runtime) -> ShardLog:
        """A manifest of the cast's class that also reports what it appends."""
        return self._log_class(store, SHARD, runtime, floor_trust_s=self.cast.manifest_trust_s)

    def new_worker(self, store: ObjectStore, runtime: Runtime, end: Callable[[], int | None]) -> ArchiveWorker:
        """A worker of the cast's classes, which archives the entries below `end`."""
        wal, log = self._wal(store, runtime), self.new_shard_log(store, runtime)
        return ArchiveWorker(self.cast.worker, store, runtime, wal, log, self.weather, self.truth, end)

    def wants_leader(self, name: str) -> bool:
        """Whether a broker without a lease claims now: if there is no leader, or as a rival."""
        return not self._leader or (self._in_chaos and self._draw.random() < self.weather.rival_share)

    def released(self, name: str) -> None:
        """`name` no longer leads."""
        if self._leader == name:
            self._leader = ""

    def take(self, name: str) -> Batch | None:
        """A batch that some producer sends to broker `name` now."""
        now_ms = self.scheduler.now_ms
        waiting = [p for p in self._producers if p.batches and p.taken_until_ms <= now_ms]
        if not waiting:
            return None
        producer = self._draw.choice(waiting)
        producer.taken_until_ms = now_ms + BATCH_TIMEOUT_MS
        return producer.batches[0]

    def acknowledge(self, batch: Batch, header: WalHeader | None) -> None:
        """A broker answers that `batch` is in the log."""
        self.truth.acknowledged(batch, header)
        self.truth.seen["acknowledged" if header else "acknowledged, sent again"] += 1
        for producer in self._producers:
            if producer.batches and producer.batches[0] == batch:
                producer.batches.pop(0)
                producer.taken_until_ms = self.scheduler.now_ms + self._draw.randrange(THINKING_MS_MAX)

    def refuse(self, header: WalHeader) -> None:
        """A broker answers that the entry is not in the log: its producers may send the same batch again at once."""
        self.truth.refused(header)
        for producer in self._producers:
            producer.taken_until_ms = 0

    # ---- the run

    def run(self) -> Outcome:
        """Chaos, quiet, and the final check."""
        self.scheduler.disturb = self._disturb
        violation = None
        with patch.object(topic_lists, "DIFFERENCES_MIN", self.weather.differences_min):
            try:
                self._run()
            except Violation as error:
                violation = str(error)
            finally:
                self.scheduler.close_all()
        return Outcome(self.scheduler.seed, self.truth.seen, self.scheduler.steps, self.scheduler.lines, violation)

    def _run(self) -> None:
        for start in (self._start_broker,) * self.weather.brokers + (self._start_worker,) * self.weather.workers:
            start()
        self._start_reader()
        self._run_until(lambda: not self._in_chaos)
        self._calm_down()
        self._run_until(self._is_done)
        self.truth.verify_bucket(objects_of(self._objects))

    @property
    def _in_chaos(self) -> bool:
        return self.scheduler.now_ms < CHAOS_MS

    def _run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            for due in [restart for restart in self._restarts if restart[0] <= self.scheduler.now_ms]:
                self._restarts.remove(due)
                due[1]()
            self.scheduler.step()
            if self.truth.rules.violation:
                raise self.truth.rules.violation
            if self.scheduler.now_ms > CHAOS_MS + QUIET_MS_MAX:
                raise Violation(f"liveness: not done {QUIET_MS_MAX} ms after the last fault")

    def _calm_down(self) -> None:
        self._faulty.plan = FaultPlan()
        self._broker_ambush.share = self._other_ambush.share = 0.0
        self.scheduler.disturb = lambda process: None
        self.scheduler.end_stalls()
        for _, start in self._restarts:
            start()
        self._restarts.clear()

    def _is_done(self) -> bool:
        if any(producer.batches for producer in self._producers) or self._faulty.landings:
            return False
        if self.truth.floor < len(self.truth.log):
            return False
        ends = {partition: self.truth.end_offset(partition) for partition in range(PARTITIONS)}
        return self._readers[-1].positions == ends

    def _disturb(self, process: Process) -> None:
        steps = self.scheduler.steps
        if steps >= self._next_stall:
            self._next_stall = steps + self._interval(self.weather.stall_every_steps)
            self.scheduler.stall(process, self._draw.randrange(1, self.weather.stall_ms_max))
            self.truth.seen["stall"] += 1
        elif steps >= self._next_crash:
            self._next_crash = steps + self._interval(self.weather.crash_every_steps)
            self._crash(process)

    def _crash(self, process: Process) -> None:
        self.scheduler.kill(process)
        self.released(process.name)
        self.truth.seen["crash"] += 1
        self._restarts.append((self.scheduler.now_ms + self._draw.randrange(500), self._starts.pop(process)))
        if self.scheduler.traced:
            self.scheduler.trace(f"{process.name:<12} crashes")

    def _interval(self, steps: int) -> int:
        return self._draw.randrange(1, 2 * steps) if steps else 1 << 60

    # ---- the cast

    def _start_broker(self) -> None:
        process = self._process("broker", self._start_broker)
        runtime, lease = self._runtime(process), None
        if self.weather.with_lease:
            lease = KnownLease(self._lease_server, process.name, runtime.clock)
            self.scheduler.spawn(process, process.name, lease.keep_alive())
        broker = Broker(self, process.name, self._bucket(self._broker_ambush), runtime, lease)
        self.scheduler.spawn(process, process.name, broker.run())

    def _start_worker(self) -> None:
        process = self._process("worker", self._start_worker)
        store, runtime = self._bucket(self._other_ambush), self._runtime(process)
        worker = self.new_worker(store, runtime, lambda: None)
        for loop in worker.loops():
            self.scheduler.spawn(process, process.name, loop)
        if self.weather.deletes_records:
            self.scheduler.spawn(process, "delete records", worker.delete_records())

    def _start_reader(self) -> None:
        process = self._process("reader", self._start_reader)
        store, runtime = self._bucket(self._other_ambush), self._runtime(process)
        wal, log = self._wal(store, runtime), self.new_shard_log(store, runtime)
        self._readers.append(self.cast.reader(store, runtime, wal, log, self.truth))
        self.scheduler.spawn(process, process.name, self._readers[-1].run())

    def _wal(self, store: ObjectStore, runtime: Runtime) -> Wal:
        """It reads its floor by a manifest of its own, as in the product."""
        return Wal(store, SHARD, self.codec, self.new_shard_log(store, runtime))

    def _process(self, kind: str, start: Callable[[], None]) -> Process:
        self._started += 1
        process = Process(
            f"{kind}-{self._started}",
            clock_rate=self._draw.choice((0.97, 1.0, 1.03)),
            clock_offset_s=self._draw.uniform(0, 1e6),
            wall_offset_ms=WALL_BEGINS_MS + self._draw.randrange(-(10**9), 10**9),
            wall_stands_still=self._draw.random() < 0.1,
            stops_when_stalled=self.cast.clocks_stop_when_stalled,
        )
        self._starts[process] = start
        return process

    def _runtime(self, process: Process) -> Runtime:
        return Runtime(ProcessClock(self.scheduler, process), SeededEntropy(self._draw.getrandbits(64)))

    def _bucket(self, ambush: Ambush) -> Travelling:
        return Travelling(self._faulty, self.scheduler, ambush)

    def _producer(self, number: int) -> _Producer:
        name = f"producer-{number}"
        partition = self._draw.randrange(PARTITIONS)
        sequence, batches = 0, []
        for _ in range(self.weather.batches_each):
            count = self._draw.randrange(1, 4)
            batches.append(Batch(name, sequence, partition, count))
            sequence += count
        return _Producer(name, batches)
