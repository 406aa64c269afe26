"""Blocks of history: encoded and decoded, written once by the first worker; damage is detected."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.manifest_histories import TOPIC, history_of
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.errors import Corrupt
from tidelog.storage.manifests.json_envelope import seal
from tidelog.storage.manifests.manifest import Change, ChangeKind
from tidelog.storage.manifests.manifest_chain import Step, step_of
from tidelog.storage.manifests.manifest_history import HistoryBlock, ManifestHistory, decode_block, encode_block
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
OFFSETS = st.integers(0, 2**60)
CHANGES = st.builds(Change, st.sampled_from(ChangeKind), *[st.lists(HASHES, max_size=3).map(tuple)] * 2)


@st.composite
def blocks(draw: st.DrawFn) -> HistoryBlock:
    first = draw(st.integers(0, 2**40))
    changes = draw(st.lists(CHANGES, min_size=1, max_size=5))
    steps = tuple(
        Step(first + place, draw(OFFSETS), draw(OFFSETS), draw(OFFSETS), change, draw(HASHES))
        for place, change in enumerate(changes)
    )
    return HistoryBlock(WEB, draw(HASHES), steps)


@given(block=blocks())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_decoded(block: HistoryBlock) -> None:
    assert decode_block("key", encode_block(block)) == block


async def a_block(last: ChangeKind = ChangeKind.ARCHIVE) -> HistoryBlock:
    history = history_of(MemoryObjectStore())
    for kind in (*[ChangeKind.ARCHIVE] * 3, last):
        await history.step(kind)
    return HistoryBlock(WEB, history.versions[0].previous_head, tuple(step_of(made) for made in history.versions))


async def test_every_flipped_bit_and_every_truncation_is_noticed_or_means_the_same() -> None:
    block = await a_block()
    good = encode_block(block)
    flips = (good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in range(len(good)))
    for bad in (*flips, *(good[:length] for length in range(len(good)))):
        try:
            assert decode_block("key", bad) == block
        except Corrupt:
            continue


async def test_a_block_is_created_once_and_found_by_its_versions() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    history = ManifestHistory(counting, TOPIC, WEB)
    block = await a_block()
    assert not await history.has(0, 3)
    assert list(await history.blocks()) == []
    await history.write(block)
    await history.write(block)
    assert counting.usage().requests(Verb.PUT) == 0, "a block never changes"
    assert await history.has(0, 3)
    assert list(await history.blocks()) == [(0, 3)]
    assert await history.read(0, 3) == block


async def test_another_block_of_that_name_is_reported_and_stays() -> None:
    history = ManifestHistory(MemoryObjectStore(), TOPIC, WEB)
    first, other = await a_block(), await a_block(ChangeKind.EXPIRE)
    assert first != other
    await history.write(first)
    with pytest.raises(Corrupt, match="contradicts the versions that are still stored"):
        await history.write(other)
    assert await history.read(0, 3) == first


async def test_a_block_of_another_place_or_of_other_versions_is_refused() -> None:
    store = MemoryObjectStore()
    history = ManifestHistory(store, TOPIC, WEB)
    block = await a_block()
    for wrong in (replace(block, topic_partition=SHOP), replace(block, steps=block.steps[:3])):
        await store.put(history.key(0, 3), encode_block(wrong))
        with pytest.raises(Corrupt, match="another partition or of other versions"):
            await history.read(0, 3)


@pytest.mark.parametrize("steps", [[], "twice", "gap"])
async def test_versions_that_do_not_follow_each_other_are_refused(steps: object) -> None:
    block = await a_block()
    chosen = {"twice": [block.steps[0]] * 2, "gap": [block.steps[0], block.steps[2]]}.get(str(steps), [])
    data = encode_block(replace(block, steps=tuple(chosen)))
    with pytest.raises(Corrupt, match="follow each other"):
        decode_block("key", data)


@pytest.mark.parametrize("content", [b"null", b"[]", b'{"steps":[]}', msgspec.json.encode({"steps": [{}]})])
def test_an_invalid_block_is_corrupt(content: bytes) -> None:
    with pytest.raises(Corrupt, match="is not a history block"):
        decode_block("key", seal(1, content))
