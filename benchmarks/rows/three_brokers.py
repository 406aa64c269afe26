"""Three brokers beside one broker on the same two cores, with the same load of Arrow bodies.

On the local disk, with one etcd node for the three. In the first row the clients ask each partition's leader. In the
second they ask any broker, and the brokers forward two thirds of the bodies, on the same cores. The archivers are off:
their work depends only on bytes, and one side's work would run in the other side's turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import etcd
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import run_module
from benchmarks.rows.produce import load_facts
from benchmarks.tidelog_broker import ARROW_CLIENT, TidelogBroker

BROKERS, PARTITIONS, CONNECTIONS = 3, 12, 16
BATCH, RECORDS = 2_790, 1_500_000
"""Bodies of about 1 MiB."""
NO_ARCHIVER = {"archiver.interval.ms": 86_400_000, "archiver.min.bytes": 1 << 40}
WHAT = "produce Arrow bodies of 1 MiB, local store with fsync: three brokers beside one, on the same cores"
NAMES = (
    ("three-brokers", f"{WHAT}; clients ask the leaders", Goal("0.9 x one broker", 0.9)),
    ("three-brokers-any", f"{WHAT}; clients ask any broker", Goal("0.7 x one broker", 0.7)),
)
ALONE, LEADERS, ANY = "one broker", "three, asked as leaders", "three, any asked"


def rows(bench: Bench) -> list[Row]:
    """Two rows against the same turns of one broker."""
    if why := etcd.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    folder = bench.fresh_folder("three-brokers")
    node = etcd.EtcdNode(bench.children, folder)
    settings = {"etcd.endpoints": node.endpoint, "rebalance.delay.ms": 0, **NO_ARCHIVER}
    three = [TidelogBroker(bench.children, f"file:{folder / 'three'}", settings) for _ in range(BROKERS)]
    alone = TidelogBroker(bench.children, f"file:{folder / 'one'}", NO_ARCHIVER)
    three[0].process.wait_until(lambda: _settled(three[0]))
    for broker in (three[0], alone):
        broker.create_topic("t", PARTITIONS)
    runs: dict[str, Callable[[], tuple[LoadResult, float]]] = {
        ALONE: partial(_produced, bench, [alone]),
        LEADERS: partial(_produced, bench, three, _leaders_file(folder, three)),
        ANY: partial(_produced, bench, three),
    }
    for run in runs.values():
        run()  # warm up
    found = interleave(bench.rounds, runs)
    for broker in (*three, alone):
        broker.stop()
    node.stop()
    sides = {name: _side(name, found[name]) for name in runs}
    return [
        compare(name, what, goal, sides[side], sides[ALONE])
        for (name, what, goal), side in zip(NAMES, (LEADERS, ANY), strict=True)
    ]


def _side(name: str, found: Sequence[tuple[LoadResult, float]]) -> Side:
    results = [result for result, _ in found]
    last, cpu_seconds = found[-1]
    cpu = f"{cpu_seconds / (last.value_bytes / 1e9):.2f} CPU s of the brokers per GB"
    return Side(name, ARROW_CLIENT, "MB/s", [one.mb_per_s for one in results], [*load_facts(results)[1:], cpu])


def _settled(broker: TidelogBroker) -> bool:
    """Whether all brokers are there and the preferred one leads each shard."""
    cluster = broker.cluster().cluster
    return len(cluster.brokers) == BROKERS and all(s.leader and s.leader == s.preferred for s in cluster.shards)


def _leaders_file(folder: Path, brokers: Sequence[TidelogBroker]) -> Path:
    """The port of each partition's leader, by partition."""
    by_shard = {shard.shard: broker.port for broker in brokers for shard in broker.cluster().shards}
    file = folder / "leaders.json"
    file.write_text(json.dumps([by_shard[each.shard] for each in brokers[0].topic("t").partitions]))
    return file


def _produced(bench: Bench, brokers: Sequence[TidelogBroker], leaders: Path | None = None) -> tuple[LoadResult, float]:
    """The load's figures, and the CPU seconds of all brokers for it."""
    before = _cpu_seconds(brokers)
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", *(broker.port for broker in brokers), *(("--leaders", leaders) if leaders else ())),
        *("--topic", "t", "--partitions", PARTITIONS, "--format", "arrow", "--payload", bench.payload("events")),
        *("--connections", CONNECTIONS, "--batch", BATCH, "--records", bench.scaled(RECORDS)),
    )
    return LoadResult.from_output(out), _cpu_seconds(brokers) - before


def _cpu_seconds(brokers: Sequence[TidelogBroker]) -> float:
    return sum(broker.process.cpu_seconds() for broker in brokers)
