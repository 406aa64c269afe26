"""A cluster as `make cluster` starts it: brokers, three nodes of etcd and MinIO, observed from outside.

Figures of etcd come from etcd's own JSON gateway and metrics, not from Tidelog.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil
from infra.cluster.local_cluster import LocalCluster
from infra.cluster.process import ServiceProcess
from infra.cluster.topology import CLUSTER_NAME, Shape

from benchmarks import etcd, minio
from benchmarks.bench import Bench
from benchmarks.processes import Failed
from tidelog.client import Admin, ClusterDescription
from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, decode_value
from tidelog.storage.errors import Unavailable
from tidelog.wire.groups import GroupDescription, GroupMemberDescription

WHERE = "3 brokers, 3 nodes of etcd and MinIO"
SETTLED_S_MAX = 60.0
POLL_S = 0.05
KEYS = ClusterKeys(CLUSTER_NAME)
_COUNTER = re.compile(r'^grpc_server_(\w+)_total\{[^}]*grpc_type="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)


def missing() -> str:
    """Say why no cluster can run here and how to get the missing component; empty if one can run."""
    return etcd.missing() or minio.missing()


class Cluster:
    """The cluster while `running_cluster` is open. `brokers` are processes that can be stopped, killed and started."""

    def __init__(self, local: LocalCluster) -> None:
        self._local = local
        self.brokers: Mapping[str, ServiceProcess] = {each.service.name: each for each in local.brokers}
        self.ports = {name: local.addresses[name].port for name in self.brokers}
        self._admins = {name: Admin(local.url(name), deadline_s=60) for name in self.brokers}

    def admin(self, broker: str = "broker-1") -> Admin:
        return self._admins[broker]

    def close(self) -> None:
        """Close the connections; the processes keep running."""
        for admin in self._admins.values():
            admin.close()

    def await_settled(self) -> None:
        """Wait until every broker is registered and eligible, and its preferred broker leads each shard."""
        await_true(self.settled, SETTLED_S_MAX, "the cluster to settle")

    def settled(self) -> bool:
        try:
            seen = {name: admin.cluster() for name, admin in self._admins.items()}
        except Unavailable:
            return False
        return self._all_eligible() and all(self._placed(name, described) for name, described in seen.items())

    def leader_ports(self, topic: str) -> Sequence[int]:
        """The port of each partition's leader, by partition."""
        leaders = {shard.shard: shard.leader for shard in self.admin().cluster().cluster.shards}
        return [self.ports[leaders[each.shard] or ""] for each in self.admin().topic(topic).partitions]

    def shards_of(self, topic: str) -> set[int]:
        """The shards that hold the topic's partitions."""
        return {each.shard for each in self.admin().topic(topic).partitions}

    def group(self, name: str) -> Sequence[GroupMemberDescription]:
        """The members of a group, none if it was never used."""
        for port in self.ports.values():
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/v1/groups/{name}", timeout=5, trust_env=False)
            except httpx.TransportError:
                continue
            if answer.status_code == httpx.codes.OK:
                return msgspec.json.decode(answer.content, type=GroupDescription).members
        return ()

    def wal_entries(self) -> Mapping[int, int]:
        """How many objects each shard's write-ahead log has had so far."""
        described = [admin.cluster() for admin in self._admins.values()]
        return {shard.shard: shard.wal_next for each in described for shard in each.shards}

    def cpu_seconds(self) -> float:
        """User and system time of the brokers so far."""
        times = [psutil.Process(broker.pid).cpu_times() for broker in self.brokers.values()]
        return float(sum(each.user + each.system for each in times))

    def etcd_requests(self) -> float:
        """Requests that etcd's nodes have had so far: unary calls, and messages on streams."""
        return sum(etcd_requests_in(self._metrics(node.service.name)) for node in self._local.etcd_nodes)

    def etcd_db_bytes(self) -> float:
        """Bytes in use in the database of one node."""
        metrics = self._metrics(self._local.etcd_nodes[0].service.name)
        (line,) = re.findall(r"^etcd_mvcc_db_total_size_in_use_in_bytes (\S+)$", metrics, re.MULTILINE)
        return float(line)

    def etcd_values(self, prefix: str) -> Mapping[str, bytes]:
        """Keys and values of etcd that begin with `prefix`."""
        first, last = prefix.encode(), prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        wanted = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(last).decode()}
        url = self._local.url(self._local.etcd_nodes[0].service.name)
        answer = httpx.post(f"{url}/v3/kv/range", json=wanted, timeout=10, trust_env=False).raise_for_status().json()
        found = [(base64.b64decode(one["key"]), base64.b64decode(one["value"])) for one in answer.get("kvs", ())]
        return {key.decode(): value for key, value in found}

    def _metrics(self, node: str) -> str:
        return httpx.get(f"{self._local.url(node)}/metrics", timeout=10, trust_env=False).raise_for_status().text

    def _all_eligible(self) -> bool:
        records = [decode_value(key, value, BrokerRecord) for key, value in self.etcd_values(KEYS.brokers).items()]
        return len(records) == len(self.brokers) and all(record.eligible for record in records)

    def _placed(self, broker: str, described: ClusterDescription) -> bool:
        """Whether `broker` sees each shard at its preferred leader, and leads all of its own."""
        shards = described.cluster.shards
        own = {shard.shard for shard in shards if shard.leader == broker}
        placed = all(shard.leader and shard.leader == shard.preferred for shard in shards)
        return placed and own == {shard.shard for shard in described.shards if shard.leading}


@contextmanager
def running_cluster(bench: Bench, name: str, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Start a cluster of three brokers in a fresh folder, wait until it has settled, and stop it at the end."""
    folder: Path = bench.fresh_folder(name)
    given = {key.removeprefix("TIDELOG_").lower().replace("_", "."): value for key, value in (settings or {}).items()}
    bench.children.note_settings("Tidelog", given)
    with ExitStack() as stack:
        local = stack.enter_context(LocalCluster(folder, Shape(), settings=settings))
        local.start()
        cluster = Cluster(local)
        stack.callback(cluster.close)
        cluster.await_settled()
        yield cluster


def await_true(condition: Callable[[], bool], seconds_max: float, what: str, poll_s: float = POLL_S) -> None:
    """Wait until `condition` holds. Raises `Failed` after `seconds_max`."""
    give_up_at = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > give_up_at:
            raise Failed(f"waited {seconds_max:g} s for {what}")
        time.sleep(poll_s)


def etcd_requests_in(metrics: str) -> float:
    """Count unary calls and messages on streams in the metrics of one node. etcd also counts the end of a stream as a
    message; this function does not."""
    total = 0.0
    for counter, kind, count in _COUNTER.findall(metrics):
        if counter == "handled":
            total += float(count) if kind == "unary" else -float(count)
        elif counter == "msg_received" and kind != "unary":
            total += float(count)
    return total
