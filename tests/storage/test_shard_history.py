"""Blocks of history: encoded and decoded, written once by the first worker; damage is detected."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.storage.shard_histories import SHARD, TOPIC_ID, TopicHistory, block_fault

from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.formats import HISTORY
from tidelog.storage.manifests.json_envelope import seal
from tidelog.storage.manifests.shard_chain import GENESIS, Step, digest_of
from tidelog.storage.manifests.shard_history import (
    BLOCK,
    HistoryBlock,
    ShardHistory,
)
from tidelog.storage.manifests.shard_manifest import step_of
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor import Floor


def a_block(steps: int = 4, seed: int = 0) -> HistoryBlock:
    history, made = TopicHistory(Random(seed)), list[Step]()
    for _ in range(steps):
        history.step()
        made.append(step_of(history.manifest))
    return HistoryBlock(SHARD, GENESIS, tuple(made))


BLOCKS = st.builds(a_block, st.integers(1, 12), st.integers(0, 2**32))


@given(block=BLOCKS)
@settings(max_examples=40, deadline=None)
def test_what_is_encoded_is_decoded(block: HistoryBlock) -> None:
    assert BLOCK.decode("key", BLOCK.encode(block)) == block
    assert block_fault(block) is None


def test_every_flipped_bit_and_every_truncation_is_noticed_or_means_the_same() -> None:
    block = a_block(2)
    good = BLOCK.encode(block)
    flips = (good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in range(len(good)))
    for bad in (*flips, *(good[:length] for length in range(len(good)))):
        try:
            assert BLOCK.decode("key", bad) == block
        except (Corrupt, NewerFormat):
            continue


@given(block=BLOCKS, data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_altered_step_breaks_the_chain_at_its_version(block: HistoryBlock, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(block.steps) - 1))
    step = block.steps[at]
    topic = step.recorded.topics[TOPIC_ID]
    altered = data.draw(
        st.sampled_from(
            [
                replace(step, floor=Floor(step.floor.number + 1, step.floor.epoch)),
                replace(step, recorded=replace(step.recorded, topics={})),
                replace(
                    step,
                    recorded=replace(step.recorded, topics={TOPIC_ID: replace(topic, added=("0" * 64,))}),
                ),
                replace(step, recorded=replace(step.recorded, topics={"1" * 32: topic})),
            ]
        )
    )
    fault = block_fault(replace(block, steps=(*block.steps[:at], altered, *block.steps[at + 1 :])))
    assert fault is not None
    assert f"version {step.version} " in fault
    assert block_fault(replace(block, previous_head="1" * 64)) is not None


def test_the_step_of_another_topic_counts_with_its_digest_only() -> None:
    """The digest covers the topic's id, so that two topics cannot exchange their steps."""
    [step] = a_block(1).steps
    topic, kind = step.recorded.topics[TOPIC_ID], step.recorded.kind
    assert digest_of(TOPIC_ID, kind, topic) != digest_of("1" * 32, kind, topic)


async def test_a_block_is_created_once_and_found_by_its_versions() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    history = ShardHistory(counting, SHARD)
    block = a_block()
    assert not await history.has(0, 3)
    assert list(await history.blocks()) == []
    await history.write(block)
    await history.write(block)
    assert counting.usage().requests(Verb.PUT) == 0, "a block never changes"
    assert await history.has(0, 3)
    assert list(await history.blocks()) == [(0, 3)]
    assert await history.read(0, 3) == block


async def test_another_block_of_that_name_is_reported_and_stays() -> None:
    history = ShardHistory(MemoryObjectStore(), SHARD)
    first, other = a_block(), a_block(seed=1)
    await history.write(first)
    with pytest.raises(Corrupt, match="contradicts the versions that are still stored"):
        await history.write(other)
    assert await history.read(0, 3) == first


async def test_a_block_of_another_shard_or_of_other_versions_is_refused() -> None:
    store = MemoryObjectStore()
    history = ShardHistory(store, SHARD)
    block = a_block()
    for wrong in (replace(block, shard=SHARD + 1), replace(block, steps=block.steps[:3])):
        await store.put(history.key(0, 3), BLOCK.encode(wrong))
        with pytest.raises(Corrupt, match="another shard or of other versions"):
            await history.read(0, 3)


@pytest.mark.parametrize(
    "content",
    [b"null", b"[]", b'{"steps":[]}', b'{"shard":0,"first":0,"previous_head":"","steps":[]}', b'{"steps":[{}]}'],
)
def test_an_invalid_block_is_corrupt(content: bytes) -> None:
    with pytest.raises(Corrupt, match="is not a history block"):
        BLOCK.decode("key", seal(HISTORY, content))


def test_a_field_that_a_later_version_adds_is_ignored() -> None:
    block = a_block()
    plain = msgspec.json.decode(BLOCK.encode(block))["content"]
    plain["novelty"] = 1
    assert BLOCK.decode("key", seal(HISTORY, msgspec.json.encode(plain))) == block
