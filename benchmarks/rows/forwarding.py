"""The cost of asking a broker that does not lead the shard and forwards the request to the leader.

Two brokers with etcd and one shard, on the local disk. The same requests go to the leader and to the other broker in
turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from benchmarks import etcd
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult, percentile_ms
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import run_module
from benchmarks.rows.produce import load_facts
from benchmarks.tidelog_broker import ARROW_CLIENT, FETCH_CLIENT, TidelogBroker

EVENTS_PER_MIB = 2_790
CONNECTIONS = 4
PRODUCED, COUNT = 600_000, 1_000
LATENCY_GOAL = Goal("under 2 ms more than at the leader", 2.0, at_least=False)
THROUGHPUT_GOAL = Goal("0.7 x the same produce sent to the leader", 0.7)
FETCH_GOAL = Goal("0.7 x the same fetch sent to the leader", 0.7)
NAMES = (
    ("forwarded-latency", "one produce of 1 KiB, local store: additional p50 when forwarded", LATENCY_GOAL),
    ("forwarded-produce", "produce Arrow bodies of 1 MiB, local store, 4 connections, forwarded", THROUGHPUT_GOAL),
    ("forwarded-fetch", "fetch the hot tail as Arrow, 1 connection, forwarded", FETCH_GOAL),
)
CLIENT = "one request of one record over a kept connection, acks=all"


def rows(bench: Bench) -> list[Row]:
    if why := etcd.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    folder = bench.fresh_folder("forwarding")
    node = etcd.EtcdNode(bench.children, folder)
    settings = {"etcd.endpoints": node.endpoint, "shards": 1, "rebalance.delay.ms": 0}
    brokers = [TidelogBroker(bench.children, f"file:{folder / 'tidelog'}", settings) for _ in range(2)]
    brokers[0].process.wait_until(lambda: _settled(brokers[0]))
    brokers[0].create_topic("t")
    leader = next(broker for broker in brokers if broker.cluster().shards)
    other = next(broker for broker in brokers if broker is not leader)
    found = [_latency(bench, leader, other), *_throughput(bench, leader, other)]
    for broker in brokers:
        broker.stop()
    node.stop()
    return found


def _settled(broker: TidelogBroker) -> bool:
    """Whether both brokers are there and the preferred one leads the shard."""
    cluster = broker.cluster().cluster
    return len(cluster.brokers) == 2 and all(s.leader and s.leader == s.preferred for s in cluster.shards)


def _latency(bench: Bench, leader: TidelogBroker, other: TidelogBroker) -> Row:
    name, what, goal = NAMES[0]
    p50_ms: dict[int, list[float]] = {leader.port: [], other.port: []}
    for _ in range(bench.rounds):
        out = run_module(
            "benchmarks.loads.alternating",
            *("--ports", leader.port, other.port, "--topic", "t", "--count", bench.scaled(COUNT)),
        )
        for port, times_ms in json.loads(out.strip().splitlines()[-1]).items():
            p50_ms[int(port)].append(percentile_ms(sorted(times_ms), 0.5) / 1e3)
    forwarded = Side("forwarded", CLIENT, "ms", p50_ms[other.port])
    direct = Side("at the leader", CLIENT, "ms", p50_ms[leader.port])
    return Row(name, what, goal, forwarded.median - direct.median, (forwarded, direct), unit="ms")


def _throughput(bench: Bench, leader: TidelogBroker, other: TidelogBroker) -> list[Row]:
    produces: dict[str, Callable[[], LoadResult]] = {
        "forwarded": partial(_produce, bench, other),
        "at the leader": partial(_produce, bench, leader),
    }
    for run in produces.values():
        run()  # warm up
    produced = interleave(bench.rounds, produces)
    end = leader.log("t").high_watermark
    fetches: dict[str, Callable[[], LoadResult]] = {
        "forwarded": partial(_fetch, other, end),
        "at the leader": partial(_fetch, leader, end),
    }
    fetched = interleave(bench.rounds, fetches)
    return [
        compare(name, what, goal, _side("forwarded", client, results), _side("at the leader", client, results))
        for (name, what, goal), client, results in zip(
            NAMES[1:], (ARROW_CLIENT, FETCH_CLIENT), (produced, fetched), strict=True
        )
    ]


def _side(name: str, client: str, results: dict[str, list[LoadResult]]) -> Side:
    found = results[name]
    return Side(name, client, "MB/s", [one.mb_per_s for one in found], load_facts(found)[1:])


def _produce(bench: Bench, broker: TidelogBroker) -> LoadResult:
    out = run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", "t", "--format", "arrow", "--payload", bench.payload("events")),
        *("--connections", CONNECTIONS, "--batch", EVENTS_PER_MIB, "--records", bench.scaled(PRODUCED)),
    )
    return LoadResult.from_output(out)


def _fetch(broker: TidelogBroker, end: int) -> LoadResult:
    """Fetch the newest records, which the leader has in memory."""
    start = max(0, end - 100_000)
    out = run_module(
        "benchmarks.loads.fetch_arrow", *("--port", broker.port, "--topic", "t", "--start", start, "--end", end)
    )
    return LoadResult.from_output(out)
