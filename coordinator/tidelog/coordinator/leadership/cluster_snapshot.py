"""The cluster's keys at one revision of the key-value store, decoded: the input of every decision.

A value that cannot be decoded is logged once and left out, so one broken key cannot stop the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.coordinator.cluster.cluster_keys import (
    BrokerRecord,
    ClusterIdentity,
    ClusterKeys,
    LeaderRecord,
    PeerSecret,
    decode_value,
)
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.storage.errors import Corrupt

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderKey:
    """The leader of a shard, and the key that names it."""

    record: LeaderRecord
    item: KeyValue


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The highest epoch assigned for a shard, and the key that holds it."""

    epoch: int
    item: KeyValue


@dataclass(frozen=True)
class ClusterSnapshot:
    """`brokers` are the live ones, by id; `draining` holds broker ids; `leaders` and `epochs` are by shard."""

    revision: int = 0
    identity: ClusterIdentity | None = None
    peer_secret: PeerSecret | None = None
    brokers: Mapping[str, BrokerRecord] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    leaders: Mapping[int, LeaderKey] = field(default_factory=dict)
    epochs: Mapping[int, EpochKey] = field(default_factory=dict)

    def epoch_under(self, shard: int, lease_id: int) -> int | None:
        """The epoch of the leader of `shard` if its key is under `lease_id`, else None."""
        key = self.leaders.get(shard)
        return key.record.epoch if key and lease_id and key.item.lease_id == lease_id else None


class SnapshotDecoder:
    """Decodes a cluster's keys. It decodes each value only once."""

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        self._decoded: dict[KeyValue, object] = {}

    def snapshot(self, items: Mapping[str, KeyValue], revision: int) -> ClusterSnapshot:
        """The snapshot of `items`, which are all keys of the cluster at `revision`."""
        known, self._decoded = self._decoded, {}
        brokers: dict[str, BrokerRecord] = {}
        leaders: dict[int, LeaderKey] = {}
        epochs: dict[int, EpochKey] = {}
        identity, peer_secret = None, None
        for key, item in items.items():
            self._decoded[item] = value = known[item] if item in known else self._decode(item)
            if isinstance(value, BrokerRecord):
                brokers[key.removeprefix(self._keys.brokers)] = value
            elif isinstance(value, LeaderKey):
                leaders[int(key.removeprefix(self._keys.leaders))] = value
            elif isinstance(value, EpochKey):
                epochs[int(key.removeprefix(self._keys.epochs))] = value
            elif isinstance(value, ClusterIdentity):
                identity = value
            elif isinstance(value, PeerSecret):
                peer_secret = value
        draining = frozenset(
            key.removeprefix(self._keys.draining) for key in items if key.startswith(self._keys.draining)
        )
        return ClusterSnapshot(revision, identity, peer_secret, brokers, draining, leaders, epochs)

    def identity(self, items: Mapping[str, KeyValue]) -> ClusterIdentity | None:
        """The cluster's identity in `items`."""
        item = items.get(self._keys.identity)
        value = self._decode(item) if item else None
        return value if isinstance(value, ClusterIdentity) else None

    def _decode(self, item: KeyValue) -> object:
        """The decoded value; None for a key that has none and for a broken value."""
        key, keys = item.key, self._keys
        try:
            if key.startswith(keys.brokers):
                return decode_value(key, item.value, BrokerRecord)
            if key.startswith(keys.leaders):
                _check_number(key, keys.leaders)
                return LeaderKey(decode_value(key, item.value, LeaderRecord), item)
            if key.startswith(keys.epochs):
                _check_number(key, keys.epochs)
                return EpochKey(decode_epoch(key, item.value), item)
            if key == keys.peer_secret:
                return decode_value(key, item.value, PeerSecret)
            return decode_value(key, item.value, ClusterIdentity) if key == keys.identity else None
        except Corrupt as error:
            _log.warning("ignored a broken key: %s", error)
            return None


def _check_number(key: str, prefix: str) -> None:
    if not key.removeprefix(prefix).isdecimal():
        raise Corrupt(key, "names no shard")


def decode_epoch(key: str, value: bytes) -> int:
    """Raises `Corrupt` naming the key."""
    if not value.isdigit():
        raise Corrupt(key, f"is no epoch: {value[:40]!r}")
    return int(value)
