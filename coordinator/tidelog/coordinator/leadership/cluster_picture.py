"""The cluster as the key-value store has it at one revision, decoded: the input of every decision.

A value that cannot be decoded is logged once and left out: one broken key must not stop the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

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
class Led:
    """Who leads a shard, and the key that says so."""

    record: LeaderRecord
    item: KeyValue


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The highest epoch given out for a shard, and the key that says so."""

    epoch: int
    item: KeyValue


@dataclass(frozen=True)
class ClusterPicture:
    """`brokers` are those that live. What is absent in the store is absent here."""

    revision: int = 0
    identity: ClusterIdentity | None = None
    peer_secret: PeerSecret | None = None
    brokers: Mapping[str, BrokerRecord] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    leaders: Mapping[int, Led] = field(default_factory=dict)
    epochs: Mapping[int, EpochKey] = field(default_factory=dict)

    def epoch_under(self, shard: int, lease_id: int) -> int | None:
        """The epoch in which the owner of the lease leads `shard`; None if its key is not under that lease."""
        led = self.leaders.get(shard)
        return led.record.epoch if led and lease_id and led.item.lease_id == lease_id else None


_Value = TypeVar("_Value", bound=msgspec.Struct)


class PictureReader:
    """Makes pictures of a cluster's keys, and decodes no value twice."""

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        self._decoded: dict[KeyValue, object] = {}

    def read(self, items: Mapping[str, KeyValue], revision: int) -> ClusterPicture:
        """The picture of `items`, all keys of the cluster."""
        known, self._decoded = self._decoded, {}
        brokers: dict[str, BrokerRecord] = {}
        leaders: dict[int, Led] = {}
        epochs: dict[int, EpochKey] = {}
        draining: set[str] = set()
        identity, peer_secret = None, None
        for key, item in items.items():
            value = known[item] if item in known else self._decode(item)
            self._decoded[item] = value
            if isinstance(value, BrokerRecord):
                brokers[key.removeprefix(self._keys.brokers)] = value
            elif isinstance(value, Led):
                leaders[int(key.removeprefix(self._keys.leaders))] = value
            elif isinstance(value, EpochKey):
                epochs[int(key.removeprefix(self._keys.epochs))] = value
            elif isinstance(value, ClusterIdentity):
                identity = value
            elif isinstance(value, PeerSecret):
                peer_secret = value
            elif key.startswith(self._keys.draining):
                draining.add(key.removeprefix(self._keys.draining))
        return ClusterPicture(revision, identity, peer_secret, brokers, frozenset(draining), leaders, epochs)

    def identity(self, items: Mapping[str, KeyValue]) -> ClusterIdentity | None:
        """That of `items` alone."""
        item = items.get(self._keys.identity)
        value = self._decode(item) if item else None
        return value if isinstance(value, ClusterIdentity) else None

    def _decode(self, item: KeyValue) -> object:
        """The value, or None if it has none of interest or cannot be read."""
        try:
            return self._decode_by_key(item)
        except Corrupt as error:
            _log.warning("left out: %s", error)
            return None

    def _decode_by_key(self, item: KeyValue) -> object:
        key, keys = item.key, self._keys
        if key.startswith(keys.brokers):
            return decode_value(key, item.value, BrokerRecord)
        if key.startswith(keys.leaders):
            self._check_number(key, keys.leaders)
            return Led(decode_value(key, item.value, LeaderRecord), item)
        if key.startswith(keys.epochs):
            self._check_number(key, keys.epochs)
            return EpochKey(decode_epoch(key, item.value), item)
        if key == keys.peer_secret:
            return decode_value(key, item.value, PeerSecret)
        return decode_value(key, item.value, ClusterIdentity) if key == keys.identity else None

    def _check_number(self, key: str, prefix: str) -> None:
        if not key.removeprefix(prefix).isdecimal():
            raise Corrupt(key, "names no shard")


def decode_epoch(key: str, value: bytes) -> int:
    """Raises `Corrupt` naming the key."""
    if not value.isdigit():
        raise Corrupt(key, f"is no epoch: {value[:40]!r}")
    return int(value)
