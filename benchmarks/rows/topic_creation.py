"""Creating topics of 1,000 partitions in a cluster: how long it takes, and how many bytes etcd keeps.

Topics are stored in the journal in the bucket, so etcd should keep nothing per partition. The row counts all keys and
values under the cluster's prefix, except the brokers' registrations, before and after.
"""

from __future__ import annotations

import time

from benchmarks import cluster
from benchmarks.bench import Bench
from benchmarks.cluster import KEYS, Cluster, await_true, running_cluster
from benchmarks.measure import Goal, Row, Side, not_run
from tidelog.storage.errors import NotFound

PARTITIONS = 1_000
TOPICS = 3
KNOWN_S_MAX = 30.0
WHAT = f"creating a topic of {PARTITIONS:,} partitions, {cluster.WHERE}"
SECONDS_GOAL = Goal("under 1 s", 1_000, at_least=False)
BYTES_GOAL = Goal("under 300 bytes in etcd per partition", 300, at_least=False)
NAMES = (
    ("topic-creation", WHAT, SECONDS_GOAL),
    ("topic-etcd-bytes", f"{WHAT}: bytes in etcd per partition", BYTES_GOAL),
)
CLIENT = "one POST to broker-1, until its answer"


def rows(bench: Bench) -> list[Row]:
    if why := cluster.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    with running_cluster(bench, "topic-creation") as brokers:
        before, before_db = _kept_bytes(brokers), brokers.etcd_db_bytes()
        times = [_created_ms(brokers, f"t{number}") for number in range(TOPICS * bench.rounds)]
        made = PARTITIONS * len(times)
        kept = (_kept_bytes(brokers) - before) / made
        grown = (brokers.etcd_db_bytes() - before_db) / made
    everywhere = f"known to all brokers after {max(known for _, known in times):.0f} ms at most"
    answered = Side("Tidelog", CLIENT, "ms", [answered for answered, _ in times], [everywhere])
    database = f"a node's database grew by {grown:.1f} bytes a partition, its history and registrations included"
    stored = Side("etcd", f"{len(times)} such topics", "bytes", [kept], [database])
    measured = (answered.median, kept)
    return [
        Row(name, what, goal, figure, [side])
        for (name, what, goal), figure, side in zip(NAMES, measured, (answered, stored), strict=True)
    ]


def _created_ms(brokers: Cluster, topic: str) -> tuple[float, float]:
    """Milliseconds until the answer, and until every broker answers for the last partition."""
    began = time.perf_counter()
    brokers.admin().create_topic(topic, PARTITIONS)
    answered = time.perf_counter()
    await_true(lambda: all(_knows(brokers, name, topic) for name in brokers.brokers), KNOWN_S_MAX, topic)
    return (answered - began) * 1e3, (time.perf_counter() - began) * 1e3


def _knows(brokers: Cluster, broker: str, topic: str) -> bool:
    try:
        return brokers.admin(broker).topic_log(topic).partition(PARTITIONS - 1).high_watermark == 0
    except NotFound:
        return False


def _kept_bytes(brokers: Cluster) -> int:
    kept = brokers.etcd_values(KEYS.root)
    return sum(len(key) + len(value) for key, value in kept.items() if not key.startswith(KEYS.brokers))
