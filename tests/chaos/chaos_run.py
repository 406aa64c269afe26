"""One run: a cluster, a load, faults from a seed, and the judge's verdict on the recorded history.

    outcome = ChaosRun(folder, seed=7, shape=Shape()).for_minutes(3)
    assert outcome.holds, outcome.summary()

The folder keeps everything: the history, every process's log, the report. A fault has been survived when, in every
partition, an append that began after the fault's end is acknowledged. A run in which this does not happen in time
fails.

The harness records in the history when it changed the cluster. The judge excuses failures only during these times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

from infra.cluster.topology import Shape
from infra.log_oracle import LOG_ORACLE
from tests.chaos.checker.coverage import AT_THE_END, unrecorded
from tests.chaos.checker.history import FaultWindow, History
from tests.chaos.checker.history_lines import format_operation, parse_history
from tests.chaos.checker.judge import Verdict, judge
from tests.chaos.commit import commit_of
from tests.chaos.faults import Calm
from tests.chaos.load.workload import CONTENDED, MIXED, ORDERED, Workload
from tests.chaos.load_process import LoadProcess, LoadStatus
from tests.chaos.oracle.oracle import LINEARIZABLE, ask_oracle, oracle_trouble
from tests.chaos.schedule import Pace, Planned, plan
from tests.chaos.world import World, open_world

PARTITIONS = {ORDERED: 4, MIXED: 4, CONTENDED: 2}
RECOVERY_S_MAX = 90.0
LOOK_S = 0.25
LOOK_AT_KINDS_S = 2.0
TRACEBACK_SHOWN = 1_500
"""Characters of the end of a log line, which is JSON and holds the whole traceback."""


class DidNotRecover(Exception):
    """Some partition took no appends although every fault had ended."""


@dataclass(frozen=True)
class Struck:
    """A fault as it happened, by the history's clock. `recovered_at`: when every partition took appends again."""

    kind: str
    told: str
    began_at: float
    over_at: float
    recovered_at: float


@dataclass(frozen=True)
class Outcome:
    """`oracle`: the result of the second judge. `trouble`: other reasons why the run failed. Times are of the clients'
    monotonic clock; add `epoch_s` for seconds since 1970."""

    seed: int
    folder: Path
    shape: Shape
    began_at: float
    ended_at: float
    struck: Sequence[Struck]
    history: History
    verdict: Verdict
    oracle: str
    commit: str
    trouble: Sequence[str]
    epoch_s: float

    @property
    def holds(self) -> bool:
        return self.verdict.holds and not self.trouble

    def summary(self) -> str:
        """Text for a failing test: how to run it again, and where its files are."""
        faults = "\n".join(f"  {fault.began_at:.3f} {fault.kind}: {fault.told}" for fault in self.struck)
        lines = [
            f"seed {self.seed} at commit {self.commit}; histories and logs in {self.folder}",
            str(self.verdict),
            self.oracle,
            *self.trouble,
        ]
        return "\n".join([*lines, "faults:", faults])


class ChaosRun:
    """Everything except timing follows from the seed. `settings` are environment variables of the brokers. `told` is
    called with every fault."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        shape: Shape,
        settings: Mapping[str, str] | None = None,
        told: Callable[[str], object] = str,
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._shape = shape
        self._settings = settings
        self._told = told
        self._struck: list[Struck] = []
        self._windows: list[FaultWindow] = []
        self._trouble: list[str] = []
        self._never = threading.Event()

    def for_minutes(self, minutes: float, kinds: Sequence[str] | None = None) -> Outcome:
        """Inject faults until the time is over."""
        end_at = time.monotonic() + 60 * minutes
        planned = plan(self._seed, self._shape, kinds)
        return self.of(takewhile(lambda _: time.monotonic() < end_at, planned))

    def of_kinds(self, kinds: Sequence[str], pace: Pace) -> Outcome:
        """Inject one fault of each kind."""
        return self.of(islice(plan(self._seed, self._shape, kinds, pace), len(kinds)))

    def of(self, faults: Iterable[Planned], until: Callable[[LoadStatus], bool] = lambda _: True) -> Outcome:
        """Inject these faults, one after the other, and let the load work on until it has come far enough."""
        self._folder.mkdir(parents=True, exist_ok=True)
        began_at = time.monotonic()
        with open_world(self._folder, self._shape, self._settings) as world:
            workload = Workload(self._seed, world.client_urls, PARTITIONS, kafka=world.kafka_addresses)
            with LoadProcess(workload, self._folder) as load:
                self._await_appends(load, began_at)
                self._windows.append(FaultWindow("start of the cluster", began_at, time.monotonic()))
                for planned in faults:
                    self._strike(world, load, planned)
                self._await(load, until)
                self._await_every_kind(load)
                status = load.stop()
            self._trouble += _defects(world)
        history = self._kept(load.history)
        self._trouble += unrecorded(history)
        oracle = self._ask_oracle(history)
        self._trouble += [f"unexpected answer: {told}" for told in status.unexpected]
        return Outcome(
            self._seed,
            self._folder,
            self._shape,
            began_at,
            time.monotonic(),
            self._struck,
            history,
            judge(history),
            oracle,
            commit_of(Path(__file__).parent),
            self._trouble,
            time.time() - time.monotonic(),
        )

    def _strike(self, world: World, load: LoadProcess, planned: Planned) -> None:
        self._never.wait(planned.calm_s)
        began_at = time.monotonic()
        self._told(f"{began_at:.3f} {planned.kind}: {planned.fault}")
        planned.fault.begin(world)
        self._never.wait(planned.fault.duration_s)
        planned.fault.end(world)
        over_at = time.monotonic()
        self._await_appends(load, over_at)
        struck = Struck(planned.kind, str(planned.fault), began_at, over_at, time.monotonic())
        self._struck.append(struck)
        if not isinstance(planned.fault, Calm):
            self._windows.append(FaultWindow(struck.kind, began_at, struck.recovered_at))

    def _ask_oracle(self, history: History) -> str:
        """Ask the second judge. A machine that cannot build the oracle runs without it."""
        if LOG_ORACLE.find() is None:
            return f"the oracle did not judge, since it is not on this machine: {LOG_ORACLE.how}"
        verdicts = ask_oracle({"": history})[""]
        self._trouble += oracle_trouble(verdicts)
        operations = sum(each.operations for each in verdicts)
        linearizable = sum(each.verdict == LINEARIZABLE for each in verdicts)
        return f"oracle: {linearizable} of {len(verdicts)} partitions are linearizable, in {operations} operations"

    def _kept(self, path: Path) -> History:
        """The history that the clients recorded, with the times of the faults."""
        with path.open("a", encoding="utf-8") as history:
            history.writelines(format_operation(window) + "\n" for window in self._windows)
        with path.open(encoding="utf-8") as lines:
            return parse_history(lines)

    def _await(self, load: LoadProcess, until: Callable[[LoadStatus], bool]) -> None:
        give_up_at = time.monotonic() + RECOVERY_S_MAX
        while not until(status := load.status()):
            assert time.monotonic() < give_up_at, f"the load did too little in {RECOVERY_S_MAX} s: {status.counts}"
            self._never.wait(LOOK_S)

    def _await_every_kind(self, load: LoadProcess) -> None:
        """On a busy machine some clients have done little by now. If a kind is missing in the end, `of` says so."""
        give_up_at = time.monotonic() + RECOVERY_S_MAX
        while time.monotonic() < give_up_at and any(unrecorded(_so_far(load.history), but=AT_THE_END)):
            self._never.wait(LOOK_AT_KINDS_S)

    def _await_appends(self, load: LoadProcess, after: float) -> None:
        """Wait until, in every partition, an append that began after `after` is acknowledged."""
        give_up_at = time.monotonic() + RECOVERY_S_MAX
        while waiting := list(_waiting(load.status(), after)):
            if time.monotonic() > give_up_at:
                raise DidNotRecover(f"seed {self._seed}, {self._folder}: {waiting} took nothing in {RECOVERY_S_MAX} s")
            self._never.wait(LOOK_S)


def _so_far(path: Path) -> History:
    """What the clients have recorded; the last line may be cut off."""
    with path.open(encoding="utf-8") as lines:
        return parse_history(line for line in lines if line.endswith("\n"))


def _defects(world: World) -> Iterator[str]:
    """Stop the brokers, which must stop cleanly, and look for log lines that none of them may write."""
    for broker in world.cluster.brokers:
        code = broker.stop()
        if code != 0:
            yield f"{broker.service.name} ended with {code} when it was told to stop"
        with broker.log_path.open(encoding="utf-8", errors="replace") as lines:
            found = [line.strip() for line in lines if "Traceback (most recent call last)" in line]
        if found:
            yield f"{broker.log_path} holds {len(found)} tracebacks; the first: {found[0][-TRACEBACK_SHOWN:]}"


def _waiting(status: LoadStatus, after: float) -> Iterator[str]:
    for topic, count in PARTITIONS.items():
        for partition in range(count):
            if status.acknowledged_at.get(f"{topic}/{partition}", 0.0) <= after:
                yield f"{topic}/{partition}"
