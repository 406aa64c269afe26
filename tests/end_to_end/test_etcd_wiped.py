"""etcd loses all data under load: producers notice nothing, brokers do not act on the empty etcd, and `tidelog cluster
recover` restores it from the bucket while the brokers commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.components.etcd_server import EtcdServer
from tests.components.required import require_component
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog, start_together, wait_until
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin, MembershipDescription

WAIT_S = 30.0
SHARDS = 4
RECORDS = 300
"""Records acknowledged before the test takes its next step."""


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that may be wiped."""
    server = EtcdServer(require_component("etcd"), tmp_path / "etcd")
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def settings(own_etcd: EtcdServer, tmp_path: Path) -> dict[str, object]:
    return {
        "store": f"file:{tmp_path / 'data'}",
        "etcd.endpoints": own_etcd.url,
        "cluster.name": "wiped",
        "shards": SHARDS,
        "rebalance.delay.ms": 0,
        "lease.ttl.ms": 2000,
    }


@pytest.fixture
def brokers(settings: dict[str, object], tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    started = [BrokerProcess(tmp_path, {**settings, "broker.id": f"broker-{n}"}) for n in range(2)]
    try:
        start_together(started)
        yield started
    finally:
        for broker in started:
            broker.stop()


def seen_by(broker: BrokerProcess) -> MembershipDescription:
    with Admin(broker.url) as admin:
        return admin.cluster().cluster


def epochs(broker: BrokerProcess) -> dict[int, int]:
    return {shard.shard: shard.epoch for shard in seen_by(broker).shards}


def wait_until_settled(broker: BrokerProcess, brokers: int) -> None:
    """Wait until each shard's preferred broker leads it, with this number of brokers and no error."""

    def settled() -> bool:
        seen = seen_by(broker)
        led = all(shard.leader and shard.leader == shard.preferred for shard in seen.shards)
        return led and len(seen.brokers) == brokers and not seen.trouble

    wait_until(settled, WAIT_S, lambda: f"{seen_by(broker)}\n{broker.log()}")


def wait_until_told_to_recover(broker: BrokerProcess) -> None:
    wait_until(lambda: "tidelog cluster recover" in seen_by(broker).trouble, WAIT_S, broker.log)


def recover(settings: dict[str, object]) -> None:
    named = [f"--{name.replace('.', '-')}={settings[name]}" for name in ("store", "etcd.endpoints", "cluster.name")]
    ended = run_tidelog(["cluster", "recover", *named])
    assert ended.returncode == 0, ended.stderr


def test_a_wiped_etcd_is_filled_again_under_load(
    brokers: list[BrokerProcess], own_etcd: EtcdServer, settings: dict[str, object]
) -> None:
    one, other = brokers
    wait_until_settled(one, 2)
    before = epochs(one)
    with Admin(one.url) as admin:
        admin.create_topic("web", partitions=SHARDS)
    with SteadyLoad(f"{one.url},{other.url}", "web") as load:
        load.await_acknowledged(RECORDS)
        own_etcd.kill()
        load.await_acknowledged(RECORDS)
        own_etcd.wipe()
        own_etcd.start()
        for broker in brokers:
            wait_until_told_to_recover(broker)
        load.await_acknowledged(RECORDS)
        flags = (f"--{name.replace('.', '-')}={value}" for name, value in settings.items())
        late = run_tidelog(["serve", "--port=0", *flags])
        assert late.returncode == 1
        assert b"tidelog cluster recover" in late.stderr

        recover(settings)
        wait_until_settled(one, 2)
        assert epochs(one) == before, "leaders went on in their own epochs"
        load.await_acknowledged(RECORDS)
        other.kill()
        wait_until_settled(one, 1)
        load.await_acknowledged(RECORDS)
    assert load.failure is None
    load.assert_whole(one.url, "web")
