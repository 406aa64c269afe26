"""What a cluster keeps in the key-value store: the names of the keys and the shape of their values.

    /tidelog/<cluster>/identity              ClusterIdentity: which bucket this cluster owns; the bucket names it back
    /tidelog/<cluster>/peer-secret           PeerSecret: by which brokers prove to each other that they are brokers
    /tidelog/<cluster>/brokers/<broker id>   BrokerRecord, under the broker's lease: who lives
    /tidelog/<cluster>/draining/<broker id>  a broker that is to lead nothing, until it starts again
    /tidelog/<cluster>/leaders/<shard>       LeaderRecord, under the leader's lease: who leads
    /tidelog/<cluster>/epochs/<shard>        the highest epoch ever given out, as a decimal number
    /tidelog/<cluster>/journal               the journal's next number: brokers that see it rise read on

Nothing of it is truth about records: a leader is proved by the write-ahead log, topics stand in the journal on the
bucket. So the whole of it may be lost, and `recover` writes it again from the bucket.

An epoch is in `epochs/` before its leader claims it in the log. So the log's epoch is never above the one here, unless
the store was wiped or put back to an older state; whoever finds it so must not lead (`recover` mends it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tidelog.storage.errors import Corrupt

FORMAT_VERSION = 1


class ClusterIdentity(msgspec.Struct, frozen=True):
    """Binds a cluster to a bucket: the same in the key-value store (`identity`) and in the journal (`cluster`).

    `coordinator`: ``etcd`` or ``embedded``. `shards`: how many write-ahead logs there are. `founded` is False between
    the first write of the journal and the store's, so that a first start that was cut off can go on."""

    format_version: int
    cluster_id: str
    name: str
    coordinator: str
    shards: int
    founded: bool


class PeerSecret(msgspec.Struct, frozen=True):
    """The secret that every broker of the cluster knows and no client. It is never logged, so `repr` leaves it out."""

    format_version: int
    secret: str

    def __repr__(self) -> str:
        return f"PeerSecret(format_version={self.format_version})"


class BrokerRecord(msgspec.Struct, frozen=True):
    """A broker that lives. `address`: ``http://HOST:PORT`` for peers and clients. `incarnation` differs between two
    processes of one `broker_id`. `eligible`: it has been up long enough to be given shards; `stopping`: it wants to be
    rid of those it has."""

    broker_id: str
    incarnation: str
    address: str
    zone: str
    version: str
    started_at_ms: int
    eligible: bool
    stopping: bool


class LeaderRecord(msgspec.Struct, frozen=True):
    """Who leads a shard, and in which epoch."""

    broker_id: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The keys of the cluster `name`."""

    name: str

    @property
    def root(self) -> str:
        return f"/tidelog/{self.name}/"

    @property
    def identity(self) -> str:
        return f"{self.root}identity"

    @property
    def peer_secret(self) -> str:
        return f"{self.root}peer-secret"

    @property
    def brokers(self) -> str:
        """The prefix of all brokers."""
        return f"{self.root}brokers/"

    def broker(self, broker_id: str) -> str:
        return self.brokers + broker_id

    @property
    def draining(self) -> str:
        """The prefix of all marks of draining."""
        return f"{self.root}draining/"

    def drained(self, broker_id: str) -> str:
        return self.draining + broker_id

    @property
    def leaders(self) -> str:
        """The prefix of all leaders."""
        return f"{self.root}leaders/"

    def leader(self, shard: int) -> str:
        return f"{self.leaders}{shard:04d}"

    @property
    def epochs(self) -> str:
        """The prefix of all epochs."""
        return f"{self.root}epochs/"

    def epoch(self, shard: int) -> str:
        return f"{self.epochs}{shard:04d}"

    @property
    def journal(self) -> str:
        return f"{self.root}journal"


_Value = TypeVar("_Value", bound=msgspec.Struct)


def encode_value(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def decode_value(key: str, value: bytes, kind: type[_Value]) -> _Value:
    """Raises `Corrupt` naming the key."""
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(key, f"is no {kind.__name__}: {error}") from error
