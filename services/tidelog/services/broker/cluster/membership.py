"""A broker's membership in its cluster, through one key-value store.

It checks the identity, follows the journal and takes part in leadership. If the store does not answer at the start, the
broker waits for a while, because the processes of a cluster often start together. A broker that cannot check whose
bucket it has must not start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from msgspec import structs

from tidelog.coordinator.cluster.allotted_ids import allot_node_id
from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys, PeerSecret
from tidelog.coordinator.cluster.feature_level import raise_feature_level
from tidelog.coordinator.cluster.identity import bucket_identity, ensure_peer_secret, join_or_found
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.coordinator.leadership.cluster_follower import LeadershipSettings
from tidelog.coordinator.leadership.leadership import Leadership
from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.coordinator.topics.catalog_sync import CatalogChange, CatalogSync
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.cluster.kv_group_stores import KvGroupStores
from tidelog.services.broker.groups.group_stores import GroupStores
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Unavailable
from tidelog.storage.formats import FEATURE_LEVEL

STOP_SHARE = 0.4
"""The fraction of ``shutdown.timeout.ms`` for handing over shards."""
JOIN_PATIENCE_S = 30.0
_RETRY = Backoff(first_s=0.2, max_s=2.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Joined:
    identity: ClusterIdentity
    sync: CatalogSync
    leadership: Leadership


class Membership:
    """Implements `Coordination`. `open_kv` is called on the running event loop."""

    def __init__(self, parts: BrokerParts, open_kv: Callable[[], KeyValueStore]) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._runtime = parts.resources.runtime
        self._keys = ClusterKeys(parts.settings.cluster_name)
        self._open_kv = open_kv
        self._kv: KeyValueStore | None = None
        self._joined: _Joined | None = None

    async def join(self, on_change: Callable[[CatalogChange], None]) -> ClusterIdentity:
        self._kv = self._open_kv()
        identity, secret, record = await self._join_patiently(self._kv, self._new_record())
        sync = CatalogSync(self._parts.journal, self._parts.catalog, self._kv, self._keys, self._runtime)
        sync.on_change(on_change)
        await sync.start()
        leadership = Leadership(
            self._kv,
            self._keys,
            self._parts.shards,
            record,
            lambda: range(self.identity.shards),
            self._runtime,
            LeadershipSettings(
                cluster_id=identity.cluster_id,
                lease_ttl_s=self._settings.lease_ttl_ms / 1000,
                rebalance_delay_s=self._settings.rebalance_delay_ms / 1000,
                stop_timeout_s=STOP_SHARE * self._settings.shutdown_timeout_ms / 1000,
            ),
        )
        self._joined = _Joined(identity, sync, leadership)
        self._parts.peer_secrets.follow(secret.secret, lambda: _secret_of(leadership))
        return identity

    def _new_record(self) -> BrokerRecord:
        settings, incarnation = self._settings, self._runtime.entropy.new_id()
        broker_id = settings.broker_id or f"broker-{incarnation[:8]}"
        return BrokerRecord(
            broker_id=broker_id,
            incarnation=incarnation,
            address=settings.own_address,
            zone=settings.broker_zone,
            version=version("tidelog"),
            started_at_ms=self._runtime.clock.now_ms(),
            eligible=False,
            stopping=False,
            feature_level=FEATURE_LEVEL,
            listeners=settings.own_listeners,
        )

    async def lead(self) -> None:
        leadership = self._here().leadership
        await leadership.start()
        self._parts.shards.on_change = leadership.wake  # leadership reacts at once to a shard that was fenced

    async def hand_over(self) -> None:
        if self._joined:
            await self._joined.leadership.hand_over()

    async def leave(self) -> None:
        if self._joined:
            await self._joined.leadership.aclose()
            await self._joined.sync.aclose()
        if self._kv:
            await self._kv.aclose()

    @property
    def view(self) -> ClusterView:
        return self._here().leadership.view

    @property
    def identity(self) -> ClusterIdentity:
        return bucket_identity(self._parts.journal) or self._here().identity

    def group_stores(self) -> GroupStores:
        assert self._kv is not None, "it has joined"
        stores = KvGroupStores(
            self._kv,
            self._keys,
            self.view,
            self._parts.shards.led,
            lambda: self.identity.shards,
            self._parts.store,
            self._runtime,
            grace_s=self._settings.delete_grace_ms / 1000,
        )
        stores.start()
        return stores

    async def catch_up(self) -> None:
        await self._here().sync.refresh()

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        await self._here().leadership.drain(broker_id, undo=undo)

    async def raise_feature_level(self, level: int) -> None:
        brokers = self.view.brokers()
        assert self._kv is not None, "it has joined"
        await raise_feature_level(self._parts.journal, (self._kv, self._keys), level, brokers)

    async def must_stop(self) -> str:
        return await self._here().leadership.must_stop()

    def _here(self) -> _Joined:
        if self._joined is None:
            raise Unavailable("the broker has not joined its cluster yet")
        return self._joined

    async def _join_patiently(
        self, kv: KeyValueStore, record: BrokerRecord
    ) -> tuple[ClusterIdentity, PeerSecret, BrokerRecord]:
        """Also `record` with its node id."""
        clock, failures = self._runtime.clock, 0
        ends_s = clock.monotonic() + JOIN_PATIENCE_S
        while True:
            try:
                identity = await join_or_found(
                    self._parts.journal, kv, self._keys, shards=self._settings.shards, runtime=self._runtime
                )
                secret = await ensure_peer_secret(kv, self._keys, self._runtime.entropy)
                kept = self._settings.broker_id is not None
                node_id = await allot_node_id(self._parts.journal, record.broker_id, kept=kept)
                return identity, secret, structs.replace(record, node_id=node_id)
            except Unavailable as error:
                if clock.monotonic() >= ends_s:
                    raise
                _log.warning("cannot join the cluster yet; the broker retries: %s", error)
                failures += 1
                await clock.sleep(_RETRY.delay_s(failures, self._runtime.entropy))


def _secret_of(leadership: Leadership) -> str | None:
    stored = leadership.view.peer_secret()
    return None if stored is None else stored.secret
