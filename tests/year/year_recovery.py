"""Recovery from the bucket alone: an empty etcd is filled from it, and a new broker serves the year."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until
from tests.year.year_checks import Check, check_clicks
from tests.year.year_outcome import Place
from tests.year.year_source import YearSource

from tidelog.client import Admin

LED_S_MAX = 60.0


def check_recovered(place: Place, source: YearSource, etcd: Path) -> Check:
    """`etcd`: the program. No broker may run on the bucket, which belongs to a cluster from then on."""
    folder = place.folder / "etcd"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    server = EtcdServer(etcd, folder)
    broker = BrokerProcess(
        place.folder, {"store": place.store, "etcd.endpoints": server.url, "rebalance.delay.ms": 0}, place.environment
    )
    try:
        server.start()
        run = run_tidelog(
            ["cluster", "recover", "--yes", "--store", place.store, "--etcd-endpoints", server.url],
            environment=place.environment,
        )
        assert run.returncode == 0, run.stderr
        broker.start()
        with Admin(broker.url) as admin:
            wait_until(lambda: all(shard.leader for shard in admin.cluster().cluster.shards), LED_S_MAX, broker.log)
            ends = {
                topic.name: [partition.high_watermark for partition in admin.topic(topic.name).partitions]
                for topic in source.topics
            }
        clicks = check_clicks(broker.url, source)
    finally:
        broker.stop()
        server.stop()
    holds = clicks.holds and ends == source.records
    return Check("recovered from the bucket into an empty etcd", holds, f"clicks: {clicks.shown}; ends: {ends}")
