"""Several `tidelog serve` with a real etcd on one bucket. Each reaches etcd through a proxy of its own.

The fixture `cluster` (`conftest.py`) is shared by the tests of a file, because a start costs seconds. A test takes
`whole`, starts again each broker that it has killed, and uses topics and groups of its own names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.components.cut_proxy import CutProxy
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, start_together, wait_until
from tests.end_to_end.group_client import SECRET

from tidelog.client import Admin

BROKERS = SHARDS = 3
LEASE_S = 1.0
WHOLE_S_MAX = 40.0


class BrokerCluster:
    """`ways`: the proxy between each broker and etcd."""

    def __init__(self, brokers: list[BrokerProcess], ways: list[CutProxy]) -> None:
        self.brokers = brokers
        self.ways = ways

    @property
    def urls(self) -> list[str]:
        return [broker.url for broker in self.brokers]

    @property
    def addresses(self) -> str:
        return ",".join(self.urls)

    def at(self, url: str) -> BrokerProcess:
        return next(broker for broker in self.brokers if broker.url == url)

    def leaders(self, seen_by: int = 0) -> dict[int, int]:
        """The number of the broker that leads each shard, as one of the brokers sees it."""
        with Admin(self.brokers[seen_by].url) as admin:
            shards = admin.cluster().cluster.shards
        return {s.shard: int(s.leader.removeprefix("broker-")) for s in shards if s.leader}

    def led_by(self, led: set[int], seen_by: int = 0) -> bool:
        """Whether exactly these brokers lead, together all shards."""
        leaders = self.leaders(seen_by)
        return len(leaders) == SHARDS and set(leaders.values()) == led

    def await_leaders(self, led: set[int], seen_by: int = 0) -> None:
        wait_until(lambda: self.led_by(led, seen_by), WHOLE_S_MAX, self.brokers[seen_by].log)

    def mend(self) -> None:
        """Open the connections to etcd."""
        for way in self.ways:
            way.mend()


@contextmanager
def broker_cluster(etcd: EtcdServer, folder: Path, kafka_ports: Sequence[int] = ()) -> Iterator[BrokerCluster]:
    """A cluster whose brokers accept requests, and are stopped at the end. `kafka_ports`: where each one listens for
    clients of Kafka's protocol, if it does."""
    with ExitStack() as stack:
        ways = [stack.enter_context(CutProxy(etcd.url)) for _ in range(BROKERS)]
        name = f"cluster-{uuid.uuid4().hex}"
        settings = [_settings(folder, name, number, way.url) for number, way in enumerate(ways)]
        for own, port in zip(settings, kafka_ports, strict=False):
            own["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        brokers = [BrokerProcess(folder, own) for own in settings]
        for broker in brokers:
            stack.callback(broker.stop)
        start_together(brokers)
        yield BrokerCluster(brokers, ways)


def _settings(folder: Path, name: str, number: int, etcd: str) -> dict[str, object]:
    return {
        "store": f"file:{folder / 'data'}",
        "etcd.endpoints": etcd,
        "etcd.timeout.ms": 500,
        "cluster.name": name,
        "broker.id": f"broker-{number}",
        "shards": SHARDS,
        "num.partitions": SHARDS,
        "lease.ttl.ms": int(LEASE_S * 1000),
        "rebalance.delay.ms": 0,
        "peer.secret": SECRET,
        "offsets.commit.timeout.ms": 1_000,
    }
