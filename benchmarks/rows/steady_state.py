"""Ten minutes of JSON events at full rate, with archiving, merging and deletion running, then the same load on Kafka.

A burst shows the limit of the write path; this shows the rate that a broker can hold. It measures three things:

- the MB/s acknowledged during the load
- the data that is not archived at the end of the load, compared with two minutes after its start
- the same bytes divided by the time until the broker is at rest (nothing left to archive or merge)

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
SETTLE_SECONDS_MAX = 120.0
KAFKA_SHARE = 0.3
"""Share of the load's time for Kafka. Kafka accumulates no debt, so its rate is steady sooner."""
EARLY_SHARE = 0.2
"""Share of the load's time. The debt at the end is compared with the debt at this point."""
SAMPLE_EVERY_S = 5.0
PARTITIONS, CONNECTIONS, BATCH = 4, 16, 5_000
AT_REST_CORES = 0.1
KAFKA_KEEPS = {"log.retention.bytes": 4 << 30, "log.retention.check.interval.ms": 10_000}
WHAT = "ten minutes of JSON events of 376 bytes at full rate, local store, all background work on"
SPEED = Goal("1 x Kafka's MB/s", 1.0)
DEBT = Goal("no more than after two minutes", 1.0, at_least=False)
NAMES = (
    ("steady-state", f"{WHAT}: MB/s acknowledged", SPEED),
    ("steady-state-all-work", f"{WHAT}: MB/s until the broker is at rest", SPEED),
    ("steady-state-debt", f"{WHAT}: GB not archived at the end", DEBT),
)


@dataclass(frozen=True)
class Debt:
    """Raw GB that are committed but not archived, `at_s` after the load began, and the broker's CPU seconds so far."""

    at_s: float
    gb: float
    cpu_s: float


@dataclass(frozen=True)
class Steady:
    """One run of Tidelog. `settled_s`: seconds from the end of the load until the broker was at rest, None if that took
    longer than `SETTLE_SECONDS_MAX`."""

    load: LoadResult
    debts: Sequence[Debt]
    end: Debt
    settled_s: float | None


def rows(bench: Bench) -> list[Row]:
    """Three rows from one round, because a round takes twenty minutes."""
    if why := kafka.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    ours, kafka_sides = (
        _tidelog(bench, seconds),
        [_kafka(bench, KAFKA_SHARE * seconds, name) for name in ("usual", "best")],
    )
    sides = (_acknowledged(ours), _until_rest(ours))
    made = [compare(*name, side, kafka_sides[0]) for name, side in zip(NAMES, sides, strict=False)]
    best = kafka_sides[1]
    note = f"{best.name}: {best.median:.0f} MB/s ({best.client})"
    return [*(Row(r.name, r.what, r.goal, r.measured, r.sides, note) for r in made), _debt_row(ours, seconds)]


# ---- Tidelog


def _tidelog(bench: Bench, seconds: float) -> Steady:
    broker = TidelogBroker(bench.children, f"file:{bench.fresh_folder('steady') / 'tidelog'}")
    broker.create_topic("t", PARTITIONS)
    record_bytes = mean_bytes(bench.payload("events"))
    began_s = time.monotonic()

    def debt() -> Debt:
        return Debt(time.monotonic() - began_s, _unarchived_gb(broker, record_bytes), broker.process.cpu_seconds())

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(_load, bench, broker, seconds)
        debts = _while_running(loading, debt)
        load = LoadResult.from_output(loading.result())
    end = debt()
    settled_s = _settle(debt)
    broker.stop()
    bench.fresh_folder("steady")
    return Steady(load, debts, end, settled_s)


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


def _settle(debt: Callable[[], Debt]) -> float | None:
    """Seconds until, for two samples in a row, nothing was left to archive and the broker took almost no CPU."""
    began_s, before, quiet = time.monotonic(), debt(), 0
    while time.monotonic() - began_s < SETTLE_SECONDS_MAX:
        time.sleep(SAMPLE_EVERY_S)
        now = debt()
        cores = (now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)
        quiet = quiet + 1 if now.gb == 0 and cores < AT_REST_CORES else 0
        if quiet == 2:
            return time.monotonic() - began_s - 2 * SAMPLE_EVERY_S
        before = now
    return None


def _acknowledged(ours: Steady) -> Side:
    facts = [
        str(ours.load.latency),
        f"{ours.load.refused} times refused",
        f"broker {ours.end.cpu_s / ours.load.gb:.1f} CPU s/GB while the load ran",
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


def _debt_row(ours: Steady, seconds: float) -> Row:
    early = min(ours.debts, key=lambda debt: abs(debt.at_s - EARLY_SHARE * seconds))
    sides = [
        Side("at the end", ARROW_CLIENT, "GB", [ours.end.gb]),
        Side(f"after {early.at_s:.0f} s", ARROW_CLIENT, "GB", [early.gb]),
    ]
    return Row(*NAMES[2], ours.end.gb / early.gb if early.gb else 1.0, sides)


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
