"""Versions of long lists are stored as differences: they give the same manifests with few requests and few bytes, and
any error in a difference or its base is detected."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.manifest_histories import TOPIC, History, a_list, archived, history_of
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests import manifest_codec
from tidelog.storage.manifests.json_envelope import seal, unseal
from tidelog.storage.manifests.manifest import MANIFEST_FORMAT, ChangeKind, Manifest
from tidelog.storage.manifests.manifest_chain import chain_fault
from tidelog.storage.manifests.manifest_codec import StoredDifference, decode_version
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here more than 3 segments count as long, and more than 4 differences as too many."""
    monkeypatch.setattr(manifest_codec, "WHOLE_SEGMENTS_MAX", 3)
    monkeypatch.setattr(manifest_codec, "DIFFERENCES_MAX", 4)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("seed", range(8))
async def test_every_version_reads_back_as_it_was_appended(store: MemoryObjectStore, seed: int) -> None:
    history = history_of(store, seed)
    for _ in range(60):
        await history.run(1)
        assert await ManifestLog(store, TOPIC, WEB).latest() == history.versions[-1]
    log = ManifestLog(store, TOPIC, WEB)
    for manifest in history.versions:
        assert await log.read(manifest.version) == manifest
        assert chain_fault(manifest) is None
    bases = [manifest.base_version for manifest in history.versions]
    assert len(set(bases)) > 3, "whole versions came between"
    known = [base for base in bases if base is not None]
    assert known == sorted(known), "bases never go back, which the collection of old versions rests on"


@pytest.mark.usefixtures("short")
@given(kinds=st.lists(st.sampled_from([*[ChangeKind.ARCHIVE] * 4, ChangeKind.MERGE, ChangeKind.EXPIRE]), max_size=40))
@settings(max_examples=30, deadline=None)
async def test_any_history_reads_back(kinds: list[ChangeKind]) -> None:
    store = MemoryObjectStore()
    history = history_of(store)
    for kind in kinds:
        await history.step(kind)
    log = ManifestLog(store, TOPIC, WEB)
    assert [await log.read(manifest.version) for manifest in history.versions] == history.versions


async def test_lists_of_up_to_512_segments_are_whole_and_a_whole_one_comes_after_512_differences(
    store: MemoryObjectStore,
) -> None:
    log = ManifestLog(store, TOPIC, WEB)
    manifest = await log.append(Manifest(WEB, segments=a_list(511), cold_end=511_000))
    for number in range(511, 511 + 1_030):
        manifest = await log.append(archived(manifest, number))
        differences = len(manifest.segments) - 512
        if differences <= 0 or differences % 513 == 0:
            assert manifest.base_version is None, differences
        else:
            assert manifest.version - (manifest.base_version or 0) == differences % 513
    assert await ManifestLog(store, TOPIC, WEB).latest() == manifest


async def test_a_long_list_is_opened_by_one_list_and_two_gets_and_then_by_one_each(store: MemoryObjectStore) -> None:
    counting = CountingObjectStore(store)
    writer = ManifestLog(store, TOPIC, WEB)
    manifest = await writer.append(Manifest(WEB, segments=a_list(600), cold_end=600_000))
    manifest = await writer.append(archived(manifest, 600))
    reader = ManifestLog(counting, TOPIC, WEB)
    assert await reader.latest() == manifest
    usage = counting.usage()
    assert (usage.requests(Verb.LIST), usage.requests(Verb.GET), usage.requests()) == (1, 2, 3)
    manifest = await writer.append(archived(manifest, 601))
    assert await reader.latest() == manifest
    usage = counting.usage() - usage
    assert (usage.requests(Verb.LIST), usage.requests(Verb.GET), usage.requests()) == (1, 1, 2)


async def test_reading_old_versions_does_not_disturb_what_is_appended_next(store: MemoryObjectStore) -> None:
    history = history_of(store)
    await history.log.append(Manifest(WEB, segments=a_list(1_000), cold_end=1_000_000))
    await history.run(600, [ChangeKind.ARCHIVE])
    for version in (0, 3, 599, 1):
        await history.log.read(version)
    await history.run(3, [ChangeKind.ARCHIVE])
    assert await ManifestLog(store, TOPIC, WEB).latest() == history.versions[-1]


# ---- what may be wrong


async def long_history(store: MemoryObjectStore) -> tuple[History, bytes]:
    """Versions 0 to 2 are whole, 3 and 4 are differences to 2; return the object of version 4."""
    history = history_of(store)
    await history.run(5, [ChangeKind.ARCHIVE])
    assert [manifest.base_version for manifest in history.versions] == [None, None, None, 2, 2]
    return history, (await store.get(history.log.key(4))).data


@pytest.mark.usefixtures("short")
async def test_every_flipped_bit_of_a_difference_is_noticed_or_means_the_same(store: MemoryObjectStore) -> None:
    history, good = await long_history(store)
    key = history.log.key(4)
    for place in range(len(good)):
        bad = good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :]
        await store.put(key, bad)
        try:
            assert await ManifestLog(store, TOPIC, WEB).latest() == history.versions[-1]
        except Corrupt:
            continue


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_another_base_than_the_one_it_was_made_from_is_refused(store: MemoryObjectStore, count: int) -> None:
    history, _ = await long_history(store)
    rival_store = MemoryObjectStore()
    other = ManifestLog(rival_store, TOPIC, WEB)
    manifest = await other.latest()
    for number in (5, 6, 7)[: count + 1]:
        manifest = await other.append(archived(manifest, number))
    while manifest.version < 2:
        manifest = await other.append(manifest, ChangeKind.COLLECT)
    await store.put(history.log.key(2), (await rival_store.get(other.key(2))).data)
    with pytest.raises(Corrupt, match="is a difference to another version 2") as caught:
        await ManifestLog(store, TOPIC, WEB).latest()
    assert caught.value.name == history.log.key(4)


@pytest.mark.usefixtures("short")
async def test_a_base_that_is_missing_or_itself_a_difference_is_reported(store: MemoryObjectStore) -> None:
    history, good = await long_history(store)
    content = msgspec.json.decode(unseal("", good, MANIFEST_FORMAT))
    content["base_version"] = 3
    await store.put(history.log.key(4), seal(MANIFEST_FORMAT, msgspec.json.encode(content)))
    with pytest.raises(Corrupt, match="is a difference to version 3, which is one itself"):
        await ManifestLog(store, TOPIC, WEB).latest()
    await store.put(history.log.key(4), good)
    await store.delete(history.log.key(2))
    with pytest.raises(Corrupt, match="is a difference to version 2, which is missing"):
        await ManifestLog(store, TOPIC, WEB).latest()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("name", "value"),
    [("removed", [77]), ("removed", [-1]), ("added", "all"), ("added", [{"key": "k"}]), ("added", [])],
)
async def test_a_difference_that_does_not_make_a_list_is_refused(
    store: MemoryObjectStore, name: str, value: object
) -> None:
    history, good = await long_history(store)
    content = msgspec.json.decode(unseal("", good, MANIFEST_FORMAT))
    content["segments"][name] = value
    if value == []:
        content["log_start_offset"] = content["cold_end"] + 1
    await store.put(history.log.key(4), seal(MANIFEST_FORMAT, msgspec.json.encode(content)))
    with pytest.raises(Corrupt) as caught:
        await ManifestLog(store, TOPIC, WEB).latest()
    assert caught.value.name == history.log.key(4)


@pytest.mark.usefixtures("short")
async def test_a_difference_alone_is_no_manifest(store: MemoryObjectStore) -> None:
    _, body = await long_history(store)
    assert isinstance(decode_version("key", body), StoredDifference)


@pytest.mark.usefixtures("short")
async def test_the_base_of_another_partition_is_refused(store: MemoryObjectStore) -> None:
    history, _ = await long_history(store)
    foreign = history_of(store, place=SHOP)
    await foreign.run(3, [ChangeKind.ARCHIVE])
    await store.put(history.log.key(2), (await store.get(foreign.log.key(2))).data)
    with pytest.raises(Corrupt, match="another partition or version"):
        await ManifestLog(store, TOPIC, WEB).latest()
