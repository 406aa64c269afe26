"""Requests of a working cluster to etcd, at two produce rates, from etcd's own counters.

The figure is requests per second and broker, for all its shards together.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks import cluster
from benchmarks.bench import Bench
from benchmarks.cluster import Cluster, running_cluster
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.processes import run_module

RATES_PER_S = (10, 200)
PARTITIONS, REQUEST_RECORDS = 12, 10
CONNECTION_PER_S = 2.5
SECONDS = 30
WHAT = f"requests to etcd at a steady load, {cluster.WHERE}"
RATE_GOAL = Goal("under 1 per s and broker, all shards together", 1.0, at_least=False)
SAME_GOAL = Goal("the same at 20 x the produce rate, within 10 %", 1.1, at_least=False)
NAMES = (("etcd-requests", WHAT, RATE_GOAL), ("etcd-requests-by-rate", f"{WHAT}: 200 over 10 produces/s", SAME_GOAL))
CLIENT = f"Arrow requests of {REQUEST_RECORDS} x 1 KiB to any broker, spread over {PARTITIONS} partitions"


def rows(bench: Bench) -> list[Row]:
    """Two rows from the same figures: the higher rate, and the ratio of the two."""
    if why := cluster.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    with running_cluster(bench, "etcd-load") as brokers:
        brokers.admin().create_topic("t", PARTITIONS)
        runs = {f"{rate} produces/s": partial(_requests_per_s, bench, brokers, rate) for rate in RATES_PER_S}
        found = interleave(bench.rounds, runs)
        shards = len(brokers.wal_entries())
    facts = [f"{shards} shards on {len(brokers.brokers)} brokers"]
    low, high = (Side(name, CLIENT, "requests/s of a broker", found[name], facts) for name in runs)
    most = max(low.median, high.median)
    (name, what, goal), (second, second_what, second_goal) = NAMES
    return [Row(name, what, goal, most, [high]), compare(second, second_what, second_goal, high, low)]


def _requests_per_s(bench: Bench, brokers: Cluster, rate: int) -> float:
    seconds = max(3, bench.scaled(SECONDS))
    before, began = brokers.etcd_requests(), time.perf_counter()
    run_module(
        "benchmarks.loads.prebuilt",
        *("--port", *brokers.ports.values(), "--topic", "t", "--partitions", PARTITIONS),
        *(
            "--payload",
            bench.payload("letters"),
            "--batch",
            REQUEST_RECORDS,
            "--connections",
            int(rate / CONNECTION_PER_S),
        ),
        *("--rate", rate, "--records", rate * REQUEST_RECORDS * seconds, "--seconds", seconds),
    )
    made = brokers.etcd_requests() - before
    return made / (time.perf_counter() - began) / len(brokers.brokers)
