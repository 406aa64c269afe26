"""Checks etcd: the permission to write, each member, the cluster that it holds, and whether that is the bucket's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys, decode_value
from tidelog.coordinator.cluster.identity import EMBEDDED, bucket_identity, store_identity
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.services.cli.doctor.check import Check, failed, in_time, ok, skipped
from tidelog.services.cli.doctor.etcd_member import REACH, check_member
from tidelog.services.runtime.opening import open_etcd
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Denied, Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.retrying import RetryingObjectStore

WRITE_LEASE_S = 30.0
"""etcd deletes the written keys after this time, if the command dies before it does so."""

_SETTINGS = "give the settings of the brokers: --etcd-endpoints and --cluster-name, or --config"
_RECOVER = "if etcd was wiped or restored: `tidelog cluster recover --dry-run`"


async def check_identity(bucket: ObjectStore | None, settings: Settings, runtime: Runtime) -> Sequence[Check]:
    """Whose bucket it is, and, with etcd, whether etcd says the same. `bucket` is None if it cannot be read."""
    owner: ClusterIdentity | None = None
    checks: list[Check] = []
    if bucket is not None:
        owner, found = await _owner(bucket, runtime)
        checks += found
    if settings.etcd_endpoints is None:
        finding = "no etcd is named: a broker works alone"
        if owner is not None and owner.coordinator != EMBEDDED:
            finding = f"no etcd is named, and the bucket belongs to the cluster {owner.name!r}, which has one"
            return [*checks, failed("etcd", finding, _SETTINGS)]
        return [*checks, skipped("etcd", finding)]
    return [*checks, *await _check_etcd(settings, owner, runtime)]


async def _owner(bucket: ObjectStore, runtime: Runtime) -> tuple[ClusterIdentity | None, Sequence[Check]]:
    read: list[ClusterIdentity | None] = []

    async def look() -> Sequence[Check]:
        journal = Journal(RetryingObjectStore(bucket, runtime), runtime)
        await journal.open()
        owner = bucket_identity(journal)
        read.append(owner)
        if owner is None:
            return [ok("bucket", "no cluster has used it yet")]
        owned_by = "a broker alone" if owner.coordinator == EMBEDDED else f"the cluster {owner.name!r}"
        return [ok("bucket", f"belongs to {owned_by} ({owner.cluster_id}), with {owner.shards} shards")]

    found = await in_time("bucket", look(), "`tidelog bucket verify` looks at every object")
    return (read[0] if read else None), found


async def _check_etcd(settings: Settings, owner: ClusterIdentity | None, runtime: Runtime) -> Sequence[Check]:
    try:
        kv = open_etcd(settings, runtime)
    except Invalid as error:
        return [failed("etcd", str(error), _SETTINGS)]
    keys = ClusterKeys(settings.cluster_name)
    try:
        checks = list(await in_time("etcd", _check_cluster(kv, keys, owner), REACH, denied=_grant(keys)))
        if checks[0].status == "ok":
            checks += await in_time("etcd write", check_writes(kv, keys, runtime), REACH, denied=_grant(keys))
    finally:
        await kv.aclose()
    endpoints = [endpoint.strip() for endpoint in (settings.etcd_endpoints or "").split(",")]
    asked = [asyncio.to_thread(check_member, endpoint, settings, runtime.clock) for endpoint in endpoints if endpoint]
    return [*checks, *(check for found in await asyncio.gather(*asked) for check in found)]


def _grant(keys: ClusterKeys) -> str:
    return f"grant --etcd-username read and write permission on {keys.root} and {keys.groups} (docs/deploy.md)"


async def check_writes(kv: KeyValueStore, keys: ClusterKeys, runtime: Runtime) -> Sequence[Check]:
    """Write a key under each prefix of the cluster, under a lease, and delete it at once. Brokers ignore such keys."""
    lease = await kv.grant(WRITE_LEASE_S)
    denied: list[str] = []
    try:
        for prefix in (keys.root, keys.groups):
            key = f"{prefix}doctor/{runtime.entropy.new_id()}"
            try:
                await kv.put(key, b"", lease_id=lease.lease_id)
                await kv.delete(key)
            except Denied:
                denied.append(prefix)
    finally:
        await kv.revoke(lease.lease_id)
    if denied:
        advice = _grant(keys)
        return [failed("etcd write", f"etcd refuses writes under {' and '.join(denied)}", advice)]
    return [ok("etcd write", f"keys under {keys.root} and {keys.groups} can be written and deleted")]


async def _check_cluster(kv: KeyValueStore, keys: ClusterKeys, owner: ClusterIdentity | None) -> Sequence[Check]:
    identity = await store_identity(kv, keys)
    page = await kv.range(keys.brokers)
    records = [decode_value(item.key, item.value, BrokerRecord) for item in page.items]
    running = ", ".join(f"{record.broker_id} {record.version}" for record in records) or "none"
    checks = [ok("etcd", f"answers; brokers of {keys.name!r} that run: {running}")]
    if identity is None:
        if owner is None or not owner.founded:
            return [*checks, ok("cluster", f"{keys.name!r} does not exist yet: the first broker creates it")]
        finding = f"etcd has no cluster {keys.name!r}, and the bucket belongs to {owner.name!r}"
        return [*checks, failed("cluster", finding, f"{_SETTINGS}; {_RECOVER}")]
    if owner is not None and owner.cluster_id != identity.cluster_id:
        finding = f"the bucket belongs to {owner.cluster_id}, and etcd's {keys.name!r} is {identity.cluster_id}"
        return [*checks, failed("cluster", finding, f"{_SETTINGS}, and --store; {_RECOVER}")]
    return [*checks, ok("cluster", f"{keys.name!r} in etcd is the owner of the bucket")]
