"""The keys of a cluster in the key-value store, and the values under them.

    /tidelog/<cluster>/identity              ClusterIdentity: the bucket this cluster owns; the bucket names it, too
    /tidelog/<cluster>/peer-secret           PeerSecret: how brokers prove to each other that they are brokers
    /tidelog/<cluster>/brokers/<broker id>   BrokerRecord, under the broker's lease: the live brokers
    /tidelog/<cluster>/draining/<broker id>  a broker that must lead nothing until it restarts
    /tidelog/<cluster>/leaders/<shard>       LeaderRecord, under the leader's lease
    /tidelog/<cluster>/epochs/<shard>        the highest epoch ever assigned, as a decimal number
    /tidelog/<cluster>/journal               the journal's next number; when it rises, brokers read the journal
    /tidelog-groups/<cluster>/...            groups and their offsets (`groups.stored`), which leadership does not watch
    /tidelog-groups/<cluster>/writes/<shard> changes with each write of the shard's groups (`groups.etcd_group_store`)

No key is the truth about records: the write-ahead log proves who leads, and the journal on the bucket holds the topics.
So all keys may be lost; `recover` writes them again from the bucket.

A leader's epoch is written to `epochs/` before the leader claims it in the log. So the log's epoch is never above the
stored one, unless the store was wiped or restored to an older state. A broker that finds this must not lead; `recover`
repairs it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tidelog.storage.errors import Corrupt

FORMAT_VERSION = 1


class ClusterIdentity(msgspec.Struct, frozen=True):
    """Binds a cluster to a bucket: the same value in the key-value store (`identity`) and in the journal (`cluster`).

    `coordinator`: ``etcd`` or ``embedded``. `shards`: the number of write-ahead logs. `founded` is False between the
    journal's first write and the store's, so that an interrupted first start can continue. `feature_level`: what
    writers may use (`storage.formats`)."""

    format_version: int
    cluster_id: str
    name: str
    coordinator: str
    shards: int
    founded: bool
    feature_level: int = 1


class PeerSecret(msgspec.Struct, frozen=True):
    """A secret that all brokers of the cluster know and no client knows. `repr` omits it, so it cannot be logged."""

    format_version: int
    secret: str

    def __repr__(self) -> str:
        return f"PeerSecret(format_version={self.format_version})"


class BrokerRecord(msgspec.Struct, frozen=True):
    """A live broker. `address`: ``http://HOST:PORT`` for peers and clients. `incarnation` differs between two processes
    with the same `broker_id`. `eligible`: it has been up long enough to get shards. `stopping`: it hands its shards
    over. `feature_level`: the highest that it knows. `node_id`: its number in Kafka's protocol (`allotted_ids`).
    `listeners`: where clients of that protocol reach it, ``HOST:PORT`` by the name of the listener. A record that an
    earlier version wrote has -1 and none."""

    broker_id: str
    incarnation: str
    address: str
    zone: str
    version: str
    started_at_ms: int
    eligible: bool
    stopping: bool
    feature_level: int = 1
    node_id: int = -1
    listeners: dict[str, str] = {}


class LeaderRecord(msgspec.Struct, frozen=True):
    """The leader of a shard, and its epoch."""

    broker_id: str
    incarnation: str
    epoch: int


class ClusterKeys:
    """The keys of the cluster `name`. `brokers`, `draining`, `leaders`, `epochs` and `groups` are prefixes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = f"/tidelog/{name}/"
        self.identity = f"{self.root}identity"
        self.peer_secret = f"{self.root}peer-secret"
        self.brokers = f"{self.root}brokers/"
        self.draining = f"{self.root}draining/"
        self.leaders = f"{self.root}leaders/"
        self.epochs = f"{self.root}epochs/"
        self.journal = f"{self.root}journal"
        self.groups = f"/tidelog-groups/{name}/"

    def broker(self, broker_id: str) -> str:
        return self.brokers + broker_id

    def drained(self, broker_id: str) -> str:
        return self.draining + broker_id

    def leader(self, shard: int) -> str:
        return f"{self.leaders}{shard:04d}"

    def epoch(self, shard: int) -> str:
        return f"{self.epochs}{shard:04d}"

    def group_writes(self, shard: int) -> str:
        return f"{self.groups}writes/{shard:04d}"


_Value = TypeVar("_Value", bound=msgspec.Struct)


def encode_value(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def decode_value(key: str, value: bytes, kind: type[_Value]) -> _Value:
    """Raises `Corrupt` naming the key."""
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(key, f"is no {kind.__name__}: {error}") from error
