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

import pyarrow as pa
from tests.simulation.archiver import GRACE_S, Archiver
from tests.simulation.batches import Batch, Placed
from tests.simulation.broker import Broker
from tests.simulation.lease_server import KnownLease, LeaseServer
from tests.simulation.light_codec import NO_RECORDS, LightWalCodec
from tests.simulation.network import Ambush, Travelling, Witnessed, objects_of
from tests.simulation.reader import Reader
from tests.simulation.recording import recorded
from tests.simulation.scheduler import Process, ProcessClock, Scheduler, Task
from tests.simulation.truth import Truth, Violation
from tests.simulation.weather import CHAOS_MS, Weather, draw_weather
from tests.storage.stores.faulty import FaultPlan, FaultyObjectStore

from tidelog.storage.backoff import Backoff
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.floor_trust import floor_trust_s
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import WalCodec, WalHeader
from tidelog.storage.wal.wal_writer import WalWriter

PARTITIONS = 2
BATCH_TIMEOUT_MS = 400
THINKING_MS_MAX = 500
RIVAL_SHARE = 0.01
QUIET_MS_MAX = 30_000


@dataclass(frozen=True)
class Cast:
    """The classes that run: the product's own, or mutations of them."""

    writer: type[WalWriter] = WalWriter
    archiver: type[Archiver] = Archiver
    reader: type[Reader] = Reader
    codec: Callable[[], WalCodec] = LightWalCodec
    rows: Callable[[Placed], pa.Table] = lambda placed: NO_RECORDS
    floor_trust_s: float = floor_trust_s(GRACE_S)
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
        self.codec = cast.codec()
        self.weather = cast.weather(seed)
        self.scheduler = Scheduler(seed, traced=traced)
        self._draw = random.Random(f"world {seed}")
        grace_ms = int(GRACE_S * 1000)
        self.truth = Truth(self.codec, grace_ms, lambda: self.scheduler.now_ms)
        network = Process("network")
        self._objects = MemoryObjectStore(ProcessClock(self.scheduler, network))
        self._faulty = FaultyObjectStore(
            Witnessed(self._objects, self.truth), self.weather.faults, self._runtime(network)
        )
        self._lease_server = LeaseServer(self.scheduler)
        self._lease_server.down_from_ms, self._lease_server.down_until_ms = self.weather.lease_server_down_ms
        self._broker_ambush = Ambush(self.scheduler, self.weather.broker_ambush, self.weather.stall_ms_max)
        self._other_ambush = Ambush(self.scheduler, self.weather.other_ambush, self.weather.stall_ms_max)
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
        writer_class = recorded(self.cast.writer, self.truth, self.scheduler)
        backoff = Backoff(first_s=0.004, max_s=0.05)
        return writer_class(wal, runtime, name, backoff=backoff, floor_trust_s=self.cast.floor_trust_s)

    def rows(self, placed: Placed) -> pa.Table:
        """The rows of an entry with `placed` in it."""
        return self.cast.rows(placed)

    def wants_leader(self, name: str) -> bool:
        """Whether a broker without a lease claims now: if there is no leader, or as a rival."""
        return not self._leader or (self._in_chaos and self._draw.random() < RIVAL_SHARE)

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
        for start in (self._start_broker,) * self.weather.brokers + (self._start_archiver,) * self.weather.archivers:
            start()
        self._start_reader()
        violation = None
        try:
            self._run_until(lambda: not self._in_chaos)
            self._calm_down()
            self._run_until(self._is_done)
            self.truth.verify_bucket(objects_of(self._objects))
        except Violation as error:
            violation = str(error)
        for task in self.scheduler.tasks:
            task.coroutine.close()
        return Outcome(self.scheduler.seed, self.truth.seen, self.scheduler.steps, self.scheduler.lines, violation)

    @property
    def _in_chaos(self) -> bool:
        return self.scheduler.now_ms < CHAOS_MS

    def _run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            for due in [restart for restart in self._restarts if restart[0] <= self.scheduler.now_ms]:
                self._restarts.remove(due)
                due[1]()
            self.scheduler.step()
            if self.scheduler.now_ms > CHAOS_MS + QUIET_MS_MAX:
                raise Violation(f"liveness: not done {QUIET_MS_MAX} ms after the last fault")

    def _calm_down(self) -> None:
        self._faulty.plan = FaultPlan()
        self._broker_ambush.share = self._other_ambush.share = 0.0
        self.scheduler.disturb = lambda task: None
        for task in self.scheduler.tasks:
            task.process.stalled_until_ms = 0
        for _, start in self._restarts:
            start()
        self._restarts.clear()

    def _is_done(self) -> bool:
        if any(producer.batches for producer in self._producers) or self._faulty.landings:
            return False
        if self.truth.floor < len(self.truth.log):
            return False
        ends = {partition: self.truth.end_offset(partition) for partition in range(PARTITIONS)}
        return all(self._readers[-1].positions.get(partition, 0) == end for partition, end in ends.items())

    def _disturb(self, task: Task) -> None:
        steps = self.scheduler.steps
        if steps >= self._next_stall:
            self._next_stall = steps + self._interval(self.weather.stall_every_steps)
            self.scheduler.stall(task.process, self._draw.randrange(1, self.weather.stall_ms_max))
            self.truth.seen["stall"] += 1
        elif steps >= self._next_crash:
            self._next_crash = steps + self._interval(self.weather.crash_every_steps)
            self._crash(task.process)

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
        runtime = self._runtime(process)
        lease = None
        if self.weather.with_lease:
            lease = KnownLease(self._lease_server, process.name, runtime.clock)
            self.scheduler.spawn(process, process.name, lease.keep_alive())
        broker = Broker(self, process.name, self._bucket(self._broker_ambush), runtime, lease)
        self.scheduler.spawn(process, process.name, broker.run())

    def _start_archiver(self) -> None:
        process = self._process("archiver", self._start_archiver)
        archiver = self.cast.archiver(self._bucket(self._other_ambush), self._runtime(process), self.codec)
        self.scheduler.spawn(process, process.name, archiver.run())

    def _start_reader(self) -> None:
        process = self._process("reader", self._start_reader)
        bucket = self._bucket(self._other_ambush)
        self._readers.append(self.cast.reader(bucket, self._runtime(process), self.codec, self.truth))
        self.scheduler.spawn(process, process.name, self._readers[-1].run())

    def _process(self, kind: str, start: Callable[[], None]) -> Process:
        self._started += 1
        process = Process(
            f"{kind}-{self._started}",
            clock_rate=self._draw.choice((0.97, 1.0, 1.03)),
            clock_offset_s=self._draw.uniform(0, 1e6),
            wall_offset_ms=self._draw.randrange(-(10**9), 10**9),
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
