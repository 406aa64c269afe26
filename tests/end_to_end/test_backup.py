"""A bucket is verified, swept and copied while a broker commits, archives and merges; a copy becomes a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.components.etcd_server import EtcdServer
from tests.components.required import require_component
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, wait_until
from tests.end_to_end.conftest import QUICK_ARCHIVE, StartBroker
from tests.end_to_end.steady_load import SteadyLoad, values_of

from tidelog.client import Admin

PARTITIONS = 2
RECORDS = 2_000
MERGED_AT_ONCE = {"segment.ms": "1"}


def marks(broker: BrokerProcess, topic: str = "web") -> list[int]:
    """The committed end of each partition."""
    with Admin(broker.url) as admin:
        return [found.high_watermark for found in admin.topic_log(topic).partitions]


def lines_of(*arguments: str) -> list[Mapping[str, object]]:
    """The output of a command with --json, which must succeed."""
    ended = run_tidelog(["bucket", *arguments, "--json"])
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def expect_sound(store: str) -> None:
    """Orphans are allowed: an upload whose manifest version is just being written."""
    *found, last = lines_of("verify", "--deep", "--store", store)
    assert [finding for finding in found if finding["severity"] != "orphan"] == []
    assert last["sound"] is True


def expect_prefix(broker: BrokerProcess, source: BrokerProcess, acknowledged: list[int], topic: str = "web") -> None:
    for partition, count in enumerate(acknowledged):
        held, had = values_of(broker.url, topic, partition), values_of(source.url, topic, partition)
        assert count <= len(held) <= len(had)
        assert held == had[: len(held)]


def test_beside_a_broker_under_load(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    store, target = f"file:{tmp_path / 'data'}", f"file:{tmp_path / 'copy'}"
    with Admin(broker.url) as admin:
        admin.create_topic("web", partitions=PARTITIONS, configs=MERGED_AT_ONCE)
        with SteadyLoad(broker.url, "web") as load:
            load.await_acknowledged(RECORDS)
            wait_until(lambda: len(admin.topic_log("web").segments) > 0, 30.0, broker.log)
            expect_sound(store)
            swept = lines_of("sweep", "--delete", "--grace", "1m", "--store", store)
            assert [line for line in swept if "reason" in line] == []
            for _ in range(2):
                load.await_acknowledged(RECORDS)
                acknowledged = marks(broker)
                (report,) = lines_of("copy", store, target)
                assert report["damaged"] == []
                expect_sound(target)
            expect_sound(store)
    assert load.failure is None
    load.assert_whole(broker.url, "web")
    backup = start_broker({"store": target})
    expect_prefix(backup, broker, acknowledged)
    assert run_tidelog(["topic", "produce", "web", "-p", "0"], broker=backup.url, stdin=b"more\n").returncode == 0
    assert values_of(backup.url, "web", 0)[-1] == b"more"
    used = run_tidelog(["bucket", "copy", store, target])
    assert (used.returncode, b"written to" in used.stderr or b"has written there" in used.stderr) == (5, True)


# ---- with etcd


@pytest.fixture
def own_etcds(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    """The cluster's etcd, and the one that replaces it."""
    program = require_component("etcd")
    servers = [EtcdServer(program, tmp_path / name) for name in ("etcd", "etcd-new")]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()


def test_a_copy_and_a_new_etcd_make_the_cluster_again(own_etcds: list[EtcdServer], tmp_path: Path) -> None:
    """backup -> recover -> all topics and records."""
    old, new = own_etcds
    common = {"cluster.name": "backed-up", "rebalance.delay.ms": 0, "lease.ttl.ms": 2000, **QUICK_ARCHIVE}
    store, target = f"file:{tmp_path / 'data'}", f"file:{tmp_path / 'copy'}"
    source = BrokerProcess(tmp_path, {**common, "store": store, "etcd.endpoints": old.url})
    again = BrokerProcess(tmp_path, {**common, "store": target, "etcd.endpoints": new.url})
    source.start()
    try:
        with Admin(source.url) as admin:
            for topic in ("web", "shop", "empty"):
                admin.create_topic(topic, partitions=PARTITIONS)
            assert run_tidelog(["topic", "produce", "shop"], broker=source.url, stdin=b"a\nb\nc\n").returncode == 0
            with SteadyLoad(source.url, "web") as load:
                load.await_acknowledged(RECORDS)
                acknowledged = marks(source)
                lines_of("copy", store, target)
            topics = sorted(topic.name for topic in admin.topics())
        refused = run_tidelog(["serve", "--port=0", "--store", target, *_flags(new)])
        assert (refused.returncode, b"tidelog cluster recover" in refused.stderr) == (1, True)
        recovered = run_tidelog(["cluster", "recover", "--store", target, *_flags(new)])
        assert recovered.returncode == 0, recovered.stderr
        again.start()
        with Admin(again.url) as admin:
            assert sorted(topic.name for topic in admin.topics()) == topics == ["empty", "shop", "web"]
        expect_prefix(again, source, acknowledged)
        shop = [value for partition in range(PARTITIONS) for value in values_of(again.url, "shop", partition)]
        assert sorted(map(bytes, filter(None, shop))) == [b"a", b"b", b"c"]
        assert run_tidelog(["topic", "produce", "empty"], broker=again.url, stdin=b"goes on\n").returncode == 0
        expect_sound(target)
    finally:
        source.stop()
        again.stop()


def _flags(etcd: EtcdServer) -> list[str]:
    return ["--etcd-endpoints", etcd.url, "--cluster-name", "backed-up"]
