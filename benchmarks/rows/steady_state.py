"""Ten minutes of JSON events at full rate, with archiving, merging and deletion running, then the same load on Kafka.

A burst shows the limit of the write path; this shows the rate that a broker can hold. It measures:

- the MB/s acknowledged during the load, beside a fixed goal, Kafka with its usual settings, and Kafka at its best
- the data that is not archived at the end of the load, compared with two minutes after its start
- the seconds from the end of the load until the broker is at rest: nothing is left to archive, and merges that are due
  have ended. Merges that wait for an idle broker (`archive.broker_load`) come later; `cpu-merge` has their price.
- the same bytes divided by the time until the broker is at rest
- the broker's CPU seconds until then, for a GB of values

Kafka has no background work of this kind, but its page cache must reach the disk too. The sides run one after the
other, each in an empty folder. Kafka's log is limited in size, because otherwise the disk would be full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import mean

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import run_module
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

SECONDS, QUICK_SECONDS = 600.0, 15.0
REST_S = 120.0
SETTLE_SECONDS_MAX = 180.0
"""More than the goal, so that a broker that is not at rest in time misses it."""
KAFKA_SECONDS_MIN = 15.0
"""Kafka's tool prints its rate every five seconds."""
KAFKA_SHARE = 0.3
"""Share of the load's time for Kafka. Kafka accumulates no debt, so its rate is steady sooner."""
EARLY_SHARE = 0.2
"""Share of the load's time. The debt at the end is compared with the debt at this point."""
DEBT_SHARE = 0.1
"""Share of the load's time over which a debt is averaged: a minute."""
SAMPLE_EVERY_S = 5.0
PARTITIONS, CONNECTIONS, BATCH = 4, 16, 5_000
AT_REST_CORES = 0.1
KAFKA_KEEPS = {"log.retention.bytes": 4 << 30, "log.retention.check.interval.ms": 10_000}
WHAT = "ten minutes of JSON events of 376 bytes at full rate, local store, all background work on"
RATE = Goal("at least 150 MB/s", 150.0)
SPEED = Goal("1 x Kafka's MB/s", 1.0)
BEST = Goal("1 x Kafka's MB/s with lz4", 1.0)
DEBT = Goal("no more than after two minutes", 1.0, at_least=False)
REST = Goal(f"at most {REST_S:.0f} s", REST_S, at_least=False)
CPU = Goal("at most 5", 5.0, at_least=False)
NAMES = {
    "steady-state-rate": (f"{WHAT}: MB/s acknowledged", RATE),
    "steady-state": (f"{WHAT}: MB/s acknowledged", SPEED),
    "steady-state-best": (f"{WHAT}: MB/s acknowledged", BEST),
    "steady-state-all-work": (f"{WHAT}: MB/s until the broker is at rest", SPEED),
    "steady-state-debt": (f"{WHAT}: GB not archived at the end", DEBT),
    "steady-state-rest": (f"{WHAT}: from the end of the load until the broker is at rest", REST),
    "steady-state-cpu": (f"{WHAT}: the broker's CPU for a GB until it is at rest", CPU),
}


@dataclass(frozen=True)
class Debt:
    """Raw GB that are committed but not archived, `at_s` after the load began, and the broker's CPU seconds so far."""

    at_s: float
    gb: float
    cpu_s: float


@dataclass(frozen=True)
class Steady:
    """One run of Tidelog. `began_cpu_s`: of the broker before the load. `rest`: when the broker was at rest, or the
    last sample if it was not within `SETTLE_SECONDS_MAX`. `settled_s`: seconds from the end of the load until then."""

    load: LoadResult
    began_cpu_s: float
    debts: Sequence[Debt]
    end: Debt
    rest: Debt
    settled_s: float | None

    def cpu_s_per_gb(self, until: Debt) -> float:
        return (until.cpu_s - self.began_cpu_s) / self.load.gb


def rows(bench: Bench) -> list[Row]:
    """Seven rows from one round, because a round takes twenty minutes."""
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    ours = _tidelog(bench, seconds)
    rate, until_rest = _acknowledged(ours), _until_rest(ours)
    alone = [Row("steady-state-rate", *NAMES["steady-state-rate"], rate.median, [rate]), *_own_rows(ours, seconds)]
    if why := kafka.missing():
        lacking = NAMES.keys() - {row.name for row in alone}
        return [*alone, *(not_run(name, *NAMES[name], why) for name in NAMES if name in lacking)]
    kafka_seconds = max(KAFKA_SECONDS_MIN, KAFKA_SHARE * seconds)
    usual, best = (_kafka(bench, kafka_seconds, settings) for settings in ("usual", "best"))
    beside = {
        "steady-state": (rate, usual),
        "steady-state-best": (rate, best),
        "steady-state-all-work": (until_rest, usual),
    }
    return [*alone, *(compare(name, *NAMES[name], *sides) for name, sides in beside.items())]


# ---- Tidelog


def _tidelog(bench: Bench, seconds: float) -> Steady:
    broker = TidelogBroker(bench.children, f"file:{bench.fresh_folder('steady') / 'tidelog'}")
    broker.create_topic("t", PARTITIONS)
    record_bytes = mean_bytes(bench.payload("events"))
    began_s = time.monotonic()

    def debt() -> Debt:
        return Debt(time.monotonic() - began_s, _unarchived_gb(broker, record_bytes), broker.process.cpu_seconds())

    began_cpu_s = broker.process.cpu_seconds()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(_load, bench, broker, seconds)
        debts = _while_running(loading, debt)
        load = LoadResult.from_output(loading.result())
    end = debt()
    rest, settled_s = _settle(debt)
    broker.stop()
    bench.fresh_folder("steady")
    return Steady(load, began_cpu_s, debts, end, rest, settled_s)


def _load(bench: Bench, broker: TidelogBroker, seconds: float) -> str:
    return run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", "t", "--format", "arrow", "--payload", bench.payload("events")),
        *("--connections", CONNECTIONS, "--batch", BATCH, "--partitions", PARTITIONS),
        *("--seconds", seconds, "--records", kafka.ENDLESS_RECORDS),
        seconds_max=seconds + 120,
    )


def _while_running(loading: Future[str], debt: Callable[[], Debt]) -> list[Debt]:
    found = []
    while not loading.done():
        time.sleep(SAMPLE_EVERY_S)
        found.append(debt())
    return found


def _unarchived_gb(broker: TidelogBroker, record_bytes: float) -> float:
    logs = [broker.log("t", partition) for partition in range(PARTITIONS)]
    return sum(log.high_watermark - log.cold_end for log in logs) * record_bytes / 1e9


def _settle(debt: Callable[[], Debt]) -> tuple[Debt, float | None]:
    """The last sample, and the seconds until, for two samples in a row, nothing was left to archive and the broker took
    almost no CPU."""
    began_s, before, quiet = time.monotonic(), debt(), 0
    while time.monotonic() - began_s < SETTLE_SECONDS_MAX:
        time.sleep(SAMPLE_EVERY_S)
        now = debt()
        cores = (now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)
        quiet = quiet + 1 if now.gb == 0 and cores < AT_REST_CORES else 0
        before = now
        if quiet == 2:
            return now, time.monotonic() - began_s - 2 * SAMPLE_EVERY_S
    return before, None


def _acknowledged(ours: Steady) -> Side:
    facts = [
        str(ours.load.latency),
        f"{ours.load.refused} times refused",
        f"broker {ours.cpu_s_per_gb(ours.end):.1f} CPU s/GB while the load ran",
    ]
    return Side("Tidelog", ARROW_CLIENT, "MB/s", [ours.load.mb_per_s], facts)


def _until_rest(ours: Steady) -> Side:
    settled_s = SETTLE_SECONDS_MAX if ours.settled_s is None else ours.settled_s
    fact = (
        f"at rest {settled_s:.0f} s after the load"
        if ours.settled_s is not None
        else f"not at rest {settled_s:.0f} s after the load: the figure is an upper bound"
    )
    return Side(
        "Tidelog", ARROW_CLIENT, "MB/s", [ours.load.value_bytes / 1e6 / (ours.load.seconds + settled_s)], [fact]
    )


def _own_rows(ours: Steady, seconds: float) -> list[Row]:
    """Debt, rest and CPU, which have fixed goals."""
    settled_s = SETTLE_SECONDS_MAX if ours.settled_s is None else ours.settled_s
    cpu_s = ours.cpu_s_per_gb(ours.rest)
    rest = Side(
        "Tidelog", ARROW_CLIENT, "s", [settled_s], ["it was not at rest by then"] if ours.settled_s is None else []
    )
    cpu = Side("Tidelog", ARROW_CLIENT, "CPU s/GB", [cpu_s])
    return [
        _debt_row(ours, seconds),
        Row("steady-state-rest", *NAMES["steady-state-rest"], settled_s, [rest]),
        Row("steady-state-cpu", *NAMES["steady-state-cpu"], cpu_s, [cpu]),
    ]


def _debt_row(ours: Steady, seconds: float) -> Row:
    """Means of a minute: between two passes the debt rises and falls by the size of a pass."""
    minute_s = DEBT_SHARE * seconds
    end, early = (
        Side(f"{at_s:.0f} s after the start", ARROW_CLIENT, "GB", [_mean_gb(ours.debts, at_s - minute_s, at_s)])
        for at_s in (ours.debts[-1].at_s, EARLY_SHARE * seconds)
    )
    what, goal = NAMES["steady-state-debt"]
    return Row("steady-state-debt", what, goal, end.median / early.median if early.median else 1.0, [end, early])


def _mean_gb(debts: Sequence[Debt], from_s: float, to_s: float) -> float:
    """Over the samples of that time; of a quick run, the one nearest to its end."""
    nearest = min(debts, key=lambda debt: abs(debt.at_s - to_s))
    return mean([debt.gb for debt in debts if from_s < debt.at_s <= to_s] or [nearest.gb])


# ---- Kafka


def _kafka(bench: Bench, seconds: float, settings: str) -> Side:
    broker = kafka.KafkaBroker(bench.children, bench.fresh_folder("steady-kafka"), KAFKA_KEEPS)
    broker.create_topic("t", PARTITIONS)
    properties, client = (kafka.PRODUCER, kafka.CLIENT) if settings == "usual" else (kafka.BEST, kafka.BEST_CLIENT)
    before_s = broker.process.cpu_seconds()
    tool = broker.start_producing("t", bench.payload("events"), properties)
    time.sleep(seconds)
    bench.children.stop(tool)
    cpu_s = broker.process.cpu_seconds() - before_s
    broker.stop()
    bench.fresh_folder("steady-kafka")
    mb_per_s = mean(kafka.windows_mb_per_s(tool.log.read_text()))
    name = "Kafka" if settings == "usual" else "Kafka at its best settings"
    facts = [f"broker {cpu_s / (mb_per_s * seconds / 1e3):.1f} CPU s/GB, {seconds:.0f} s"]
    return Side(name, client, "MB/s", [mb_per_s], facts)
