"""PUTs of the WALs of three brokers with 10,000 partitions and with one, under the same load.

The number of PUTs depends on the shards that are written to. One partition is in one shard; 10,000 are in all four. So
the row compares the PUT/s of a shard in use. A third side has one partition in each shard. It uses as many shards as
10,000 partitions, so the PUT/s of all logs can be compared too. The archiver's later PUTs are not counted: they depend
on bytes.
"""

from __future__ import annotations

import json

from benchmarks import cluster
from benchmarks.bench import Bench
from benchmarks.cluster import Cluster, running_cluster
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, interleave, not_run
from benchmarks.processes import run_module

SHARDS = 4
MANY = 10_000
REQUESTS_PER_S, REQUEST_RECORDS, CONNECTIONS = 200, 10, 100
SECONDS = 20
NAME = "puts-cluster"
WHAT = f"PUT/s of a shard in use with 1, {SHARDS} and 10,000 partitions, same load, {cluster.WHERE}"
GOAL = Goal("with 10,000 partitions and with one, at most 1.1 x apart", 1.1, at_least=False)
CLIENT = f"{REQUESTS_PER_S} Arrow requests/s of {REQUEST_RECORDS} x 1 KiB to the leaders, spread over the partitions"


def rows(bench: Bench) -> list[Row]:
    """One row with a side for each number of partitions. Its figure compares the smallest number with the largest."""
    if why := cluster.missing():
        return [not_run(NAME, WHAT, GOAL, why)]
    settings = {"TIDELOG_SHARDS": str(SHARDS), "TIDELOG_ARCHIVER_INTERVAL_MS": "86400000"}
    with running_cluster(bench, "cluster-puts", settings) as brokers:
        loads = [_Load(bench, brokers, partitions) for partitions in (1, SHARDS, bench.scaled(MANY))]
        for load in loads:
            load.puts_per_s()  # a round for warming up
        found = interleave(bench.rounds, {load.topic: load.puts_per_s for load in loads})
    sides = [_side(load, found[load.topic]) for load in loads]
    one, many = sides[0].median, sides[-1].median
    return [Row(NAME, WHAT, GOAL, max(one, many) / min(one, many), sides)]


class _Load:
    """A topic and the load on it."""

    def __init__(self, bench: Bench, brokers: Cluster, partitions: int) -> None:
        self.partitions, self.topic = partitions, f"p{partitions}"
        self._bench, self._brokers = bench, brokers
        brokers.admin().create_topic(self.topic, partitions)
        self.shards = len(brokers.shards_of(self.topic))
        self._leaders = bench.fresh_folder(f"leaders-{partitions}") / "ports.json"
        self._leaders.write_text(json.dumps(brokers.leader_ports(self.topic)))

    def puts_per_s(self) -> float:
        """PUT/s of all logs together."""
        before = sum(self._brokers.wal_entries().values())
        seconds = max(3, self._bench.scaled(SECONDS))
        out = run_module(
            "benchmarks.loads.prebuilt",
            *("--port", *self._brokers.ports.values(), "--leaders", self._leaders),
            *("--topic", self.topic, "--partitions", self.partitions, "--connections", CONNECTIONS),
            *("--payload", self._bench.payload("letters"), "--batch", REQUEST_RECORDS),
            *("--rate", REQUESTS_PER_S, "--records", REQUESTS_PER_S * REQUEST_RECORDS * seconds),
        )
        return (sum(self._brokers.wal_entries().values()) - before) / LoadResult.from_output(out).seconds


def _side(load: _Load, puts_per_s: list[float]) -> Side:
    facts = [f"{load.shards} of {SHARDS} shards in use", f"{puts_per_s[-1]:.1f} PUT/s of all logs in the last round"]
    per_shard = [each / load.shards for each in puts_per_s]
    return Side(f"{load.partitions:,} partitions", CLIENT, "PUT/s of a shard", per_shard, facts)
