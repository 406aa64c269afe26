"""Checks etcd: each member, the cluster that it holds, and whether that is the bucket's."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys, decode_value
from tidelog.coordinator.cluster.identity import EMBEDDED, bucket_identity, store_identity
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.services.cli.doctor.check import Check, failed, in_time, ok, skipped, warning
from tidelog.services.cli.doctor.store_checks import SKEW_FAILED_MS, SKEW_WARNING_MS
from tidelog.services.runtime.opening import open_etcd
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock, Runtime
from tidelog.storage.stores.retrying import RetryingObjectStore

_REACH = "check the endpoints (--etcd-endpoints), the network, and the certificates and user for etcd"
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
    try:
        checks = list(await in_time("etcd", _check_cluster(kv, settings, owner), _REACH))
    finally:
        await kv.aclose()
    endpoints = [endpoint.strip() for endpoint in (settings.etcd_endpoints or "").split(",")]
    asked = [asyncio.to_thread(check_member, endpoint, settings, runtime.clock) for endpoint in endpoints if endpoint]
    return [*checks, *await asyncio.gather(*asked)]


async def _check_cluster(kv: KeyValueStore, settings: Settings, owner: ClusterIdentity | None) -> Sequence[Check]:
    keys = ClusterKeys(settings.cluster_name)
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


def check_member(endpoint: str, settings: Settings, clock: Clock) -> Check:
    """Ask one member for its health over HTTP; its answer also contains its time."""
    name = f"etcd member {endpoint}"
    try:
        before_ms = clock.now_ms()
        healthy, date = _health(endpoint, settings)
        after_ms = clock.now_ms()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return failed(name, f"does not answer: {error}", _REACH)
    if not healthy:
        advice = "see its log: it has no leader, its disk is full (NOSPACE), or its data is corrupt"
        return failed(name, "says that it is not healthy", advice)
    if date is None:
        return ok(name, "is healthy")
    told_ms = int(parsedate_to_datetime(date).timestamp() * 1_000)
    skew_ms = max(told_ms - after_ms, before_ms - (told_ms + 1_000), 0)
    if skew_ms <= SKEW_WARNING_MS:
        return ok(name, "is healthy, and its clock agrees")
    found = f"is healthy; its clock and this machine's differ by {skew_ms / 1_000:,.0f} s"
    return (failed if skew_ms > SKEW_FAILED_MS else warning)(name, found, "set the clocks by NTP")


def _health(endpoint: str, settings: Settings) -> tuple[bool, str | None]:
    """Whether the member is healthy, and the Date of its answer."""
    url, timeout_s = urlsplit(endpoint), settings.etcd_timeout_ms / 1_000
    host, port = url.hostname or "", url.port
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=settings.etcd_ca_file)
        if settings.etcd_cert_file:
            tls.load_cert_chain(settings.etcd_cert_file, settings.etcd_key_file)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = json.loads(answer.read(1 << 16))
        return body.get("health") in ("true", True), answer.headers.get("date")
    finally:
        connection.close()
