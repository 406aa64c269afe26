"""`EtcdKeyValueStore` while members of a real cluster are killed, paused, wiped and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest
from tests.attempts import attempts, quicker_than, within
from tests.components.cut_proxy import CutProxy
from tests.components.etcd_server import EtcdCluster, EtcdServer
from tests.components.required import require_component
from tests.coordinator.etcd_gateway import compact
from tests.coordinator.etcd_load import running
from tests.coordinator.key_value_watches import take

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.kv.key_value import Compacted, PutKey
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime, SystemEntropy

_T = TypeVar("_T")

GAP_S_MAX = 10.0
TIMEOUT_S = 3.0
SLOWNESS_S = 2.0
"""Extra time for a loaded machine."""


@pytest.fixture
async def store(etcd_cluster: EtcdCluster) -> AsyncIterator[EtcdKeyValueStore]:
    store = EtcdKeyValueStore(EtcdSettings(etcd_cluster.urls, timeout_s=TIMEOUT_S), Runtime())
    yield store
    await store.aclose()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server only for this test."""
    server = EtcdServer(require_component("etcd"), tmp_path / "etcd")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
async def lone_store(server: EtcdServer) -> AsyncIterator[EtcdKeyValueStore]:
    store = EtcdKeyValueStore(EtcdSettings((server.url,), timeout_s=TIMEOUT_S), Runtime())
    yield store
    await store.aclose()


async def test_killing_each_member_in_turn_loses_nothing(etcd_cluster: EtcdCluster, store: EtcdKeyValueStore) -> None:
    for attempt in attempts():
        with attempt:
            within(GAP_S_MAX, await gap_s_while_members_are_killed(etcd_cluster, store), "the longest gap")


async def gap_s_while_members_are_killed(etcd_cluster: EtcdCluster, store: EtcdKeyValueStore) -> float:
    async with running(store) as load:
        for member in etcd_cluster.members:  # the member in use and the leader are among them
            member.kill()
            await load.more(10)
            await asyncio.to_thread(member.start)
    print(f"longest gap {load.gap_s():.2f} s, {len(load.seen)} events, {load.unknown} puts of unknown outcome")
    return load.gap_s()


async def test_pausing_each_member_in_turn_loses_nothing(etcd_cluster: EtcdCluster, store: EtcdKeyValueStore) -> None:
    for attempt in attempts():
        with attempt:
            within(GAP_S_MAX, await gap_s_while_members_are_paused(etcd_cluster, store), "the longest gap")


async def gap_s_while_members_are_paused(etcd_cluster: EtcdCluster, store: EtcdKeyValueStore) -> float:
    async with running(store) as load:
        for member in etcd_cluster.members:
            member.pause()
            await load.more(10)
            member.resume()
    print(f"longest gap {load.gap_s():.2f} s, {len(load.seen)} events, {load.unknown} puts of unknown outcome")
    return load.gap_s()


class _TheFirstMember(SystemEntropy):
    """Otherwise clients spread over the members."""

    def uniform(self, low: float, high: float) -> float:
        return low


async def test_a_silent_watch_on_a_paused_member_moves(etcd_cluster: EtcdCluster) -> None:
    """Only the pings of the watch's connection find out that the member is silent."""
    runtime = Runtime(entropy=_TheFirstMember())
    quiet = EtcdKeyValueStore(EtcdSettings(etcd_cluster.urls, timeout_s=TIMEOUT_S), runtime)
    async with aclosing(quiet), aclosing(quiet.watch("a", 1)) as watch:
        first, *others = etcd_cluster.members
        await _put_on([first], "a")
        await take(watch, 1)
        first.pause()
        paused_s = time.monotonic()
        await _put_on(others, "a")
        await take(watch, 1)
    print(f"moved after {time.monotonic() - paused_s:.2f} s")


async def test_without_members_calls_end_in_time_and_continue_after(
    etcd_cluster: EtcdCluster, store: EtcdKeyValueStore
) -> None:
    lease = await store.grant(60.0)
    async with running(store) as load:
        for member in etcd_cluster.members:
            member.kill()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get("a"),
            lambda: store.range("a"),
            lambda: store.put("a", b""),
            lambda: store.delete("a"),
            lambda: store.transact([], [PutKey("a", b"")]),
            lambda: store.grant(5.0),
            lambda: store.keep_alive(lease.lease_id),
            lambda: store.revoke(1),
            lambda: store.incarnation(),
        ]
        for attempt in attempts():
            with attempt, quicker_than(TIMEOUT_S + SLOWNESS_S, "calls to a store that is down"):
                ended = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
            assert [type(each) for each in ended] == [Unavailable] * len(calls)
        await asyncio.to_thread(etcd_cluster.start)
        await load.more(10)
        assert await store.keep_alive(lease.lease_id) == lease.ttl_s


async def test_a_hung_store_ends_calls_in_time(server: EtcdServer, lone_store: EtcdKeyValueStore) -> None:
    lease = await lone_store.grant(60.0)
    server.pause()
    server.wait_until_paused()
    for attempt in attempts():
        with attempt, quicker_than(TIMEOUT_S + SLOWNESS_S, "calls to a store that hangs"):
            ended = await asyncio.gather(
                lone_store.get("a"),
                lone_store.put("a", b""),
                lone_store.keep_alive(lease.lease_id),
                return_exceptions=True,
            )
        assert [type(each) for each in ended] == [Unavailable] * 3
    server.resume()
    assert await lone_store.keep_alive(lease.lease_id) == lease.ttl_s


async def test_a_compaction_while_a_watch_was_cut_off_is_reported(server: EtcdServer) -> None:
    with CutProxy(server.url) as proxy:
        near = EtcdKeyValueStore(EtcdSettings((server.url,)), Runtime())
        far = EtcdKeyValueStore(EtcdSettings((proxy.url,)), Runtime())
        start = await near.put("a", b"")
        async with aclosing(far.watch("a", start)) as watch:
            await take(watch, 1)
            proxy.cut()
            await near.delete("a")
            last = await near.put("b", b"")
            await compact(server, last)
            proxy.mend()
            with pytest.raises(Compacted):
                await take(watch, 1)
        await near.aclose()
        await far.aclose()


async def test_a_delete_at_the_compacted_revision_is_not_overlooked(etcd34: EtcdServer) -> None:
    """etcd 3.4 lets a watch begin there and does not report the deletion."""
    with CutProxy(etcd34.url) as proxy:
        near = EtcdKeyValueStore(EtcdSettings((etcd34.url,)), Runtime())
        far = EtcdKeyValueStore(EtcdSettings((proxy.url,)), Runtime())
        start = await near.put("a", b"")
        async with aclosing(far.watch("a", start)) as watch:
            await take(watch, 1)
            proxy.cut()
            await near.delete("a")
            await compact(etcd34, start + 1)
            proxy.mend()
            with pytest.raises(Compacted):
                await take(watch, 1)
        await near.aclose()
        await far.aclose()


async def test_a_watch_from_a_revision_that_never_was_is_refused(
    server: EtcdServer, lone_store: EtcdKeyValueStore
) -> None:
    """The revision was read from another store, or from this one before it was set back; etcd would silently wait for
    it."""
    revision = await lone_store.put("a", b"")
    async with aclosing(lone_store.watch("a", revision + 2)) as watch:
        with pytest.raises(Compacted):
            await take(watch, 1)


@pytest.mark.parametrize("token", ["etcd-cluster", "another"])
async def test_a_wiped_store_is_noticed(server: EtcdServer, lone_store: EtcdKeyValueStore, token: str) -> None:
    """Also with its old token, if the new cluster has the same id."""
    before = await lone_store.incarnation()
    for _ in range(5):
        last = await lone_store.put("a", b"")
    async with aclosing(lone_store.watch("a", last)) as watch:
        await take(watch, 1)
        server.kill()
        server.wipe()
        server.arguments = ["--initial-cluster-token", token]
        await asyncio.to_thread(server.start)
        with pytest.raises(Compacted):
            await take(watch, 1)
    assert await lone_store.incarnation() != before
    assert await lone_store.get("a") is None


async def test_a_restart_is_no_other_incarnation(server: EtcdServer, lone_store: EtcdKeyValueStore) -> None:
    before = await lone_store.incarnation()
    await lone_store.put("a", b"")
    server.kill()
    await asyncio.to_thread(server.start)
    assert await _in_time(lone_store.incarnation) == before


async def test_a_closed_store_leaves_nothing_behind(server: EtcdServer) -> None:
    settings = EtcdSettings((server.url,), timeout_s=30.0)
    store, unconnected = EtcdKeyValueStore(settings, Runtime()), EtcdKeyValueStore(settings, Runtime())
    start = await store.put("a", b"")
    watch = store.watch("a", start)
    await take(watch, 1)
    server.pause()
    under_way = [
        asyncio.ensure_future(anext(watch)),
        asyncio.ensure_future(store.get("a")),
        asyncio.ensure_future(store.keep_alive(1)),
        asyncio.ensure_future(unconnected.get("a")),
        asyncio.ensure_future(anext(unconnected.watch("a", 1))),
    ]
    await asyncio.wait(under_way, timeout=0.1)
    await store.aclose()
    await unconnected.aclose()
    for call in under_way:
        with pytest.raises(Unavailable, match="closed"):
            await call
    with pytest.raises(Unavailable, match="closed"):
        await store.get("a")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_calls_that_are_cancelled_end_at_once_and_harm_no_other(
    server: EtcdServer, lone_store: EtcdKeyValueStore
) -> None:
    server.pause()
    calls: list[Awaitable[object]] = [lone_store.get("a"), lone_store.put("a", b""), lone_store.keep_alive(1)]
    under_way = [asyncio.ensure_future(call) for call in (*calls, anext(lone_store.watch("a", 1)))]
    await asyncio.wait(under_way, timeout=0.1)
    for call in under_way:
        call.cancel()
    ended = await asyncio.gather(*under_way, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * len(under_way)
    server.resume()
    assert await _in_time(lambda: lone_store.put("b", b"")) > 1


async def _in_time(call: Callable[[], Awaitable[_T]]) -> _T:
    """Wait for the answer."""
    async with asyncio.timeout(GAP_S_MAX):
        while True:
            with contextlib.suppress(Unavailable):
                return await call()


async def _put_on(members: Sequence[EtcdServer], key: str) -> None:
    """Put by another client, on these members."""
    settings = EtcdSettings(tuple(member.url for member in members), timeout_s=TIMEOUT_S)
    async with aclosing(EtcdKeyValueStore(settings, Runtime())) as other:
        await _in_time(lambda: other.put(key, b""))
