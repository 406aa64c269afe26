"""What a mirror detects when it compares itself with the store, on etcd and on the embedded store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
from tests.broker.brokers import until
from tests.components.etcd_server import EtcdServer
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.faulty_key_value_store import FaultyKeyValueStore

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.kv.key_value import EventKind, KeyValueStore, PutKey, WatchBatch
from tidelog.coordinator.leadership import mirror as mirror_module
from tidelog.coordinator.leadership.mirror import KeyMirror
from tidelog.storage.runtime import Runtime

CHECK_S, OVERDUE_S = 0.1, 0.1


class LossyKeyValueStore(FaultyKeyValueStore):
    """Its watches drop the deletions of keys that end with "lost"."""

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch]:
        async with aclosing(super().watch(prefix, from_revision)) as batches:
            async for batch in batches:
                kept = [e for e in batch.events if e.kind is EventKind.PUT or not e.item.key.endswith("lost")]
                yield WatchBatch(batch.revision, kept)


@pytest.fixture(params=["embedded", "etcd"])
async def kv(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyValueStore]:
    monkeypatch.setattr(mirror_module, "CHECK_S", CHECK_S)
    monkeypatch.setattr(mirror_module, "OVERDUE_S", OVERDUE_S)
    store: KeyValueStore
    if request.param == "embedded":
        store = EmbeddedKeyValueStore(Runtime())
    else:
        server: EtcdServer = request.getfixturevalue("etcd")
        store = EtcdKeyValueStore(EtcdSettings((server.url,), timeout_s=10.0), Runtime())
    yield store
    await store.aclose()


@pytest.fixture
def prefix() -> str:
    return f"/mirror/{uuid.uuid4().hex}/"


async def test_a_silent_watch_is_found_out_by_a_delete_alone(kv: KeyValueStore, prefix: str) -> None:
    network = FaultyKeyValueStore(kv, Runtime())
    mirror = KeyMirror(network, prefix, Runtime())
    await kv.put(prefix + "a", b"")
    await kv.put(prefix + "b", b"")
    await mirror.start()
    await kv.put(prefix + "c", b"")
    await until(lambda: prefix + "c" in mirror.items)  # the watch is open
    network.deaf = True
    await kv.delete(prefix + "a")
    await until(lambda: mirror.items.keys() == {prefix + "b", prefix + "c"})
    await mirror.aclose()


async def test_a_delete_that_the_watch_swallowed_is_found_out_though_later_changes_came(
    kv: KeyValueStore, prefix: str
) -> None:
    mirror = KeyMirror(LossyKeyValueStore(kv, Runtime()), prefix, Runtime())
    await kv.put(prefix + "lost", b"")
    await mirror.start()
    await kv.put(prefix + "a", b"")
    await until(lambda: prefix + "a" in mirror.items)
    await kv.delete(prefix + "lost")
    await kv.put(prefix + "b", b"")
    await until(lambda: prefix + "b" in mirror.items)
    await until(lambda: mirror.items.keys() == {prefix + "a", prefix + "b"})
    await mirror.aclose()


async def test_a_watch_that_keeps_up_is_never_reopened(kv: KeyValueStore, prefix: str) -> None:
    """Other clients write and delete all the time, under this prefix and elsewhere in the store."""
    mirror = KeyMirror(kv, prefix, Runtime())
    await kv.put(prefix + "a", b"")
    await mirror.start()
    readings = 0
    anew = mirror.read_again

    def count() -> None:
        nonlocal readings
        readings += 1
        anew()

    mirror.read_again = count  # type: ignore[method-assign]
    for number in range(200):
        await kv.transact([], [PutKey(f"{prefix}{number % 7}", b"%d" % number), PutKey(prefix[:-1] + "else", b"")])
        await kv.delete(f"{prefix}{(number + 3) % 7}")
        await asyncio.sleep(0.005)
    assert readings == 0
    await mirror.aclose()
