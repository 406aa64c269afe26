"""The first broker makes the cluster's secret, all others read it, and `recover` makes another after a wipe."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.cluster.identity import ensure_peer_secret
from tidelog.coordinator.leadership.cluster_snapshot import SnapshotDecoder
from tidelog.storage.errors import Corrupt
from tidelog.storage.runtime import Runtime, SeededEntropy

KEYS = ClusterKeys("main")


async def test_of_brokers_that_start_at_once_one_makes_the_secret() -> None:
    store = EmbeddedKeyValueStore(Runtime())
    found = await asyncio.gather(*(ensure_peer_secret(store, KEYS, SeededEntropy(n)) for n in range(4)))
    assert len({secret.secret for secret in found}) == 1
    assert len(found[0].secret) == 64
    assert found[0].secret not in repr(found[0])
    again = await ensure_peer_secret(store, KEYS, SeededEntropy(9))
    assert again == found[0]
    await store.aclose()


async def test_the_snapshot_has_it() -> None:
    store = EmbeddedKeyValueStore(Runtime())
    secret = await ensure_peer_secret(store, KEYS, SeededEntropy(1))
    page = await store.range(KEYS.root)
    snapshot = SnapshotDecoder(KEYS).snapshot({item.key: item for item in page.items}, page.revision)
    assert snapshot.peer_secret == secret
    await store.aclose()


async def test_an_unreadable_secret_is_named_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    store = EmbeddedKeyValueStore(Runtime())
    await store.put(KEYS.peer_secret, b'{"secret": "hidden"')
    with pytest.raises(Corrupt) as refusal:
        await ensure_peer_secret(store, KEYS, SeededEntropy(1))
    assert KEYS.peer_secret in str(refusal.value)
    assert "hidden" not in str(refusal.value) + caplog.text
    await store.aclose()
