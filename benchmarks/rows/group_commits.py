"""Committed offsets a second: through etcd on three nodes, and through the journal of a broker without etcd.

No broker runs. Groups commit in closed loops through `GroupWrites`, as in a coordinator of one shard: commits that
arrive while a write is under way go together into the next one. The interval that spaces the PUTs on S3 is off, so the
sides show how much the store allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks import etcd, minio
from benchmarks.bench import Bench
from benchmarks.etcd import EtcdNodes
from benchmarks.measure import Goal, Row, Side, interleave, not_run
from benchmarks.minio import BUCKET, PASSWORD, REGION, USER, Minio
from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity, ClusterKeys, LeaderRecord, encode_value
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.group_writes import GroupWrites, WriteBounds
from tidelog.coordinator.groups.stored import StoredOffset, offset_key
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.stores.s3_settings import S3Settings

CONSUMERS, PARTITIONS = 100, 10
SECONDS = 10
GRACE_S = 600.0
WHAT = f"committed offsets: {CONSUMERS} consumers commit {PARTITIONS} partitions each, again and again"
CLIENT = "in the process that stores, without a broker"
GOAL = Goal("at least 5,000 offsets/s through three etcd nodes", 5_000.0)
Opened = AbstractAsyncContextManager[GroupStore]


@dataclass
class _Run:
    """One run: the offsets a second, and how long each commit took."""

    offsets_per_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)

    def wait_ms(self, share: float) -> float:
        return sorted(self.waits_ms)[int(share * (len(self.waits_ms) - 1))]


def rows(bench: Bench) -> list[Row]:
    if why := etcd.missing() or minio.missing():
        return [not_run("group-commits", WHAT, GOAL, why)]
    with ExitStack() as stack:
        nodes = EtcdNodes(bench.children, bench.fresh_folder("group-commits-etcd"), 3)
        stack.callback(nodes.stop)
        server = Minio(bench.children, bench.fresh_folder("group-commits-minio"))
        stack.callback(server.stop)
        opens: dict[str, Callable[[], Opened]] = {
            "Tidelog, etcd on three nodes": lambda: _in_etcd(nodes.endpoints),
            "Tidelog without etcd, local directory": lambda: _on_disk(bench.fresh_folder("group-commits")),
            "Tidelog without etcd, MinIO": lambda: _in_minio(server),
        }
        found = interleave(bench.rounds, {name: _runner(bench, opened) for name, opened in opens.items()})
    sides = [_side(name, runs) for name, runs in found.items()]
    return [Row("group-commits", WHAT, GOAL, sides[0].median, sides, unit="offsets/s")]


def _runner(bench: Bench, opened: Callable[[], Opened]) -> Callable[[], _Run]:
    return lambda: asyncio.run(_measured(opened(), max(1, bench.scaled(SECONDS))))


def _side(name: str, runs: Sequence[_Run]) -> Side:
    waits = [f"{run.wait_ms(0.5):.0f} ms, 99 %: {run.wait_ms(0.99):.0f} ms" for run in runs]
    return Side(name, CLIENT, "offsets/s", [run.offsets_per_s for run in runs], [f"a commit took {waits[-1]}"])


async def _measured(opened: Opened, seconds: float) -> _Run:
    run, failures = _Run(), list[Exception]()
    async with opened as store:
        writes = GroupWrites(store, Runtime(), WriteBounds(), GroupCounts(), failures.append)
        began_s = time.perf_counter()
        consumers = [_consumer(writes, f"group-{number}", began_s + seconds, run) for number in range(CONSUMERS)]
        await asyncio.gather(*consumers)
        run.offsets_per_s = len(run.waits_ms) * PARTITIONS / (time.perf_counter() - began_s)
    if failures:
        raise failures[0]
    return run


async def _consumer(writes: GroupWrites, group: str, ends_s: float, run: _Run) -> None:
    offset = 0
    while (began_s := time.perf_counter()) < ends_s:
        offset += 1
        writes.add(group, _commit(group, offset))
        await writes.stored(group)
        run.waits_ms.append((time.perf_counter() - began_s) * 1e3)


def _commit(group: str, offset: int) -> Sequence[Change]:
    value = msgspec.msgpack.encode(StoredOffset("t" * 32, offset, 1_700_000_000_000 + offset, 3))
    return [PutKey(offset_key(group, "events", partition), value) for partition in range(PARTITIONS)]


@asynccontextmanager
async def _in_etcd(endpoints: Sequence[str]) -> AsyncIterator[GroupStore]:
    keys, leader = ClusterKeys("bench"), LeaderRecord("broker-1", "i", 1)
    kv = EtcdKeyValueStore(EtcdSettings(tuple(endpoints)), Runtime())
    await kv.put(keys.identity, encode_value(ClusterIdentity(1, "c" * 32, "bench", "etcd", 1, founded=True)))
    await kv.put(keys.leader(0), encode_value(leader))
    try:
        yield EtcdGroupStore(kv, keys, 0, leader, 1)
    finally:
        await kv.aclose()


@asynccontextmanager
async def _on_disk(folder: Path) -> AsyncIterator[GroupStore]:
    async with _in_bucket(LocalObjectStore(folder)) as store:
        yield store


@asynccontextmanager
async def _in_minio(server: Minio) -> AsyncIterator[GroupStore]:
    settings = S3Settings(
        endpoint_url=server.endpoint, region=REGION, path_style=True, access_key_id=USER, secret_access_key=PASSWORD
    )
    async with _in_bucket(S3ObjectStore(BUCKET, "group-commits", settings)) as store:
        yield store


@asynccontextmanager
async def _in_bucket(bucket: ObjectStore) -> AsyncIterator[GroupStore]:
    store = BucketGroupStore(bucket, Runtime(), grace_s=GRACE_S)
    try:
        yield store
    finally:
        await store.aclose()
        await bucket.aclose()
