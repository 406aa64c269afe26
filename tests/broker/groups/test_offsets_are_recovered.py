"""Committed offsets outlive etcd: brokers copy them to the bucket, and `cluster recover` writes them to an empty etcd.

With a real etcd and the command itself. The brokers are in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import run_tidelog

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.groups import offset_copies
from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.kv.key_value import read_prefix
from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.groups import Groups
from tidelog.services.runtime.wiring import open_broker
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.wire import groups as calls

SHARDS = 4
GROUPS = tuple(f"group-{number}" for number in range(8))


@pytest.fixture
def keys(tmp_path: Path) -> ClusterKeys:
    """The keys of a cluster only for this test."""
    return ClusterKeys(f"offsets-{tmp_path.parent.name}-{tmp_path.name}")


@asynccontextmanager
async def broker_of(etcd: EtcdServer, keys: ClusterKeys, folder: Path) -> AsyncIterator[Broker]:
    settings = replace(
        SETTINGS,
        shards=SHARDS,
        etcd_endpoints=etcd.url,
        cluster_name=keys.name,
        broker_id="a",
        advertised_address="http://a:1",
        rebalance_delay_ms=0,
        lease_ttl_ms=10_000,
    )
    broker = open_broker(settings, Runtime(), store=LocalObjectStore(folder))
    await broker.start()
    try:
        await until(lambda: len(broker.shards.led()) == SHARDS)
        yield broker
    finally:
        await broker.aclose()


async def commit(groups: Groups, name: str, offset: int) -> None:
    offsets = (calls.PartitionOffset(topic="web", partition=0, offset=offset, metadata=f"at {offset}"),)
    await groups.call(ANYBODY, name, calls.CommitOffsets(offsets=offsets))


async def committed(groups: Groups, name: str) -> list[tuple[int, str]]:
    answer = await groups.call(ANYBODY, name, calls.FetchOffsets())
    return [(found.offset, found.metadata) for found in answer.offsets]


async def wipe(etcd: EtcdServer, keys: ClusterKeys) -> None:
    """Delete every key of the cluster, as if etcd had come back empty."""
    kv = EtcdKeyValueStore(EtcdSettings((etcd.url,), timeout_s=10.0), Runtime())
    for prefix in (keys.root, keys.groups):
        for item in (await read_prefix(kv, prefix))[0]:
            await kv.delete(item.key)
    await kv.aclose()


async def recover(etcd: EtcdServer, keys: ClusterKeys, folder: Path, *more: str) -> None:
    named = ["--store", f"file:{folder}", "--etcd-endpoints", etcd.url, "--cluster-name", keys.name]
    ended = await asyncio.to_thread(run_tidelog, ["cluster", "recover", *named, *more])
    assert ended.returncode == 0, ended.stderr


async def are_copied(folder: Path, offset: int) -> bool:
    """Whether the commit of `offset` is in the bucket, for every group."""
    copies = await copied_groups(LocalObjectStore(folder), SHARDS)
    marker = f"at {offset}".encode()
    return all(any(marker in value for value in copies.get(name, {}).values()) for name in GROUPS)


async def test_offsets_come_back_after_etcd_was_wiped_under_a_running_cluster(
    etcd: EtcdServer, keys: ClusterKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_copies, "COPY_EVERY_S", 1.0)
    folder = tmp_path / "bucket"
    async with broker_of(etcd, keys, folder) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        for offset in (1, 2):  # the second one waits for its turn
            for name in GROUPS:
                await commit(broker.groups, name, offset)
            while not await are_copied(folder, offset):  # noqa: ASYNC110  # the bucket sends no signal
                await asyncio.sleep(0.05)
        await wipe(etcd, keys)
    await recover(etcd, keys, folder)
    async with broker_of(etcd, keys, folder) as broker:
        assert [await committed(broker.groups, name) for name in GROUPS] == [[(2, "at 2")]] * len(GROUPS)
        await commit(broker.groups, GROUPS[0], 3)
        assert await committed(broker.groups, GROUPS[0]) == [(3, "at 3")]


async def test_a_broker_that_stops_copies_its_last_commits(etcd: EtcdServer, keys: ClusterKeys, tmp_path: Path) -> None:
    folder = tmp_path / "bucket"
    async with broker_of(etcd, keys, folder) as broker:
        await broker.create_topic(ANYBODY, "web", 1, {})
        for offset in (1, 2, 3):
            for name in GROUPS:
                await commit(broker.groups, name, offset)
    await wipe(etcd, keys)
    await recover(etcd, keys, folder)
    async with broker_of(etcd, keys, folder) as broker:
        assert [await committed(broker.groups, name) for name in GROUPS] == [[(3, "at 3")]] * len(GROUPS)


async def test_groups_of_a_broker_without_etcd_move_into_a_cluster(
    etcd: EtcdServer, keys: ClusterKeys, tmp_path: Path
) -> None:
    folder = tmp_path / "bucket"
    async with running_broker(LocalObjectStore(folder), shards=SHARDS) as alone:
        await alone.create_topic(ANYBODY, "web", 1, {})
        for name in GROUPS:
            await commit(alone.groups, name, 7)
    await recover(etcd, keys, folder, "--yes")
    async with broker_of(etcd, keys, folder) as broker:
        assert [await committed(broker.groups, name) for name in GROUPS] == [[(7, "at 7")]] * len(GROUPS)
        listed = await broker.groups.groups(ANYBODY)
        assert sorted(group.group for group in listed.groups) == sorted(GROUPS)
