"""The cluster under test, with all connections between its processes under the harness's control."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.cluster.local_cluster import LocalCluster
from infra.cluster.topology import Shape, kafka_name
from infra.loopback_ports import free_ports
from tests.chaos.network import LinkPorts, Network
from tests.chaos.stepped_clock import CLOCKS

CLIENTS, PEERS, STORE = "clients", "peers", "minio"
SETTINGS: Mapping[str, str] = {
    "TIDELOG_FLUSH_INTERVAL_MS": "50",
    "TIDELOG_COMMIT_TIMEOUT_MS": "6000",
    "TIDELOG_FORWARD_TIMEOUT_MS": "5000",
    "TIDELOG_ARCHIVER_INTERVAL_MS": "5000",
    "TIDELOG_DELETE_GRACE_MS": "60000",
    "TIDELOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "300",
}
"""Times shorter than the defaults, so that a run of minutes sees segments, moving floors and deletions."""
CLUSTER_SETTINGS: Mapping[str, str] = {"TIDELOG_LEASE_TTL_MS": "4000", "TIDELOG_REBALANCE_DELAY_MS": "2000"}
LEASE_S = 4.0
GRACE_S = 60.0
BROKER_START = Path(__file__).parent / "broker_start"
ROOT = Path(__file__).parents[2]


def link(viewer: str, target: str) -> str:
    """The name of the link from `viewer` to `target`."""
    return f"{viewer}>{target}"


def client_links(broker: str) -> Sequence[str]:
    """The links of a broker's clients: over HTTP, and over Kafka's protocol."""
    return link(CLIENTS, broker), link(CLIENTS, kafka_name(broker))


def links(shape: Shape) -> Iterator[str]:
    """Every link between processes that can be disturbed. Links between nodes of etcd are not included."""
    for broker in shape.broker_names:
        yield link(broker, STORE)
        yield from client_links(broker)
        if shape.etcd_nodes:
            yield link(PEERS, broker)
        for etcd in shape.etcd_names:
            yield link(broker, etcd)


@dataclass(frozen=True)
class World:
    """`ports`: where each link listens."""

    cluster: LocalCluster
    network: Network
    ports: Mapping[str, int]

    @property
    def shape(self) -> Shape:
        return self.cluster.shape

    def step_clock(self, broker: str, seconds: float) -> None:
        """Let the wall clock of `broker` be wrong by `seconds` from now on; see `stepped_clock`."""
        path = clocks_folder(self.cluster.folder) / str(self.cluster.addresses[broker].port)
        fresh = path.with_suffix(".fresh")
        fresh.write_text(str(int(1_000 * seconds)))
        fresh.replace(path)

    @property
    def client_urls(self) -> list[str]:
        """The brokers, as clients reach them."""
        return [f"http://127.0.0.1:{self.ports[link(CLIENTS, name)]}" for name in self.shape.broker_names]

    @property
    def kafka_addresses(self) -> str:
        """The brokers, as clients of Kafka reach them first."""
        names = map(kafka_name, self.shape.broker_names)
        return ",".join(f"127.0.0.1:{self.ports[link(CLIENTS, name)]}" for name in names)


def clocks_folder(folder: Path) -> Path:
    """Where the brokers of a cluster read their clock errors."""
    return folder / "clocks"


def start_hooks(clocks: Path) -> Mapping[str, str]:
    """The environment of a process of Tidelog that runs `broker_start/` first."""
    return {"PYTHONPATH": f"{BROKER_START}{os.pathsep}{ROOT}", CLOCKS: str(clocks.resolve())}


@contextmanager
def open_world(folder: Path, shape: Shape, settings: Mapping[str, str] | None = None) -> Iterator[World]:
    """A cluster that is ready, with every link open. All of it is stopped at the end."""
    names = list(links(shape))
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    clocks = clocks_folder(folder / "cluster")
    clocks.mkdir(parents=True, exist_ok=True)
    hooks = start_hooks(clocks)
    chosen = {**SETTINGS, **(CLUSTER_SETTINGS if shape.etcd_nodes else {}), **hooks, **(settings or {})}

    def route(viewer: str, target: str) -> str:
        return f"127.0.0.1:{ports[link(viewer, target)]}"

    cluster = LocalCluster(folder / "cluster", shape, route=route, settings=chosen)
    targets = {name: cluster.addresses[name.partition(">")[2]].port for name in names}
    between = {name: LinkPorts(ports[name], targets[name]) for name in names}
    with Network(between, folder / "network.log") as network, cluster:
        cluster.start()
        yield World(cluster, network, ports)
        network.heal()
