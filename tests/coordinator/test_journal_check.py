"""A journal is broken in every way that its check detects; and what the journal knows about deleted topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tidelog.coordinator.journal import CHECKPOINT_EVERY, Journal, Put, decode_entry, encode_entry
from tidelog.coordinator.recovery.journal_check import JournalCheck
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.storage.bucket.finding import Finding, Looked, Severity
from tidelog.storage.json_checksum import with_checksum
from tidelog.storage.runtime import Runtime, SeededEntropy, SystemClock
from tidelog.storage.stores.memory import MemoryObjectStore

RUNTIME = Runtime(SystemClock(), SeededEntropy(3))
ENTRIES = CHECKPOINT_EVERY + 10


def key(number: int) -> str:
    return f"meta/{number:020d}.json"


async def a_journal(entries: int = ENTRIES) -> MemoryObjectStore:
    store = MemoryObjectStore()
    journal = Journal(store, RUNTIME)
    catalog = Catalog(journal, RUNTIME)
    for number in range(entries):
        await catalog.create(f"topic-{number}", 2, {}, shard_count=4)
    return store


async def checked(store: MemoryObjectStore, *, deep: bool = True) -> list[Finding]:
    check = JournalCheck(store, RUNTIME, deep=deep)
    return [seen async for seen in check.findings() if isinstance(seen, Finding)]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("entries", [0, 1, CHECKPOINT_EVERY, ENTRIES])
async def test_a_sound_journal_has_no_findings(entries: int, deep: bool) -> None:
    store = await a_journal(entries)
    assert await checked(store, deep=deep) == []
    looked = [seen async for seen in JournalCheck(store, RUNTIME, deep=deep).findings() if isinstance(seen, Looked)]
    assert len(looked) == entries


# ---- what breaks it: each returns the key that has to be named


async def hole(store: MemoryObjectStore) -> str:
    await store.delete(key(CHECKPOINT_EVERY + 2))
    return key(CHECKPOINT_EVERY + 2)


async def old_hole(store: MemoryObjectStore) -> str:
    await store.delete(key(3))
    return key(3)


async def truncated(store: MemoryObjectStore) -> str:
    await store.put(key(CHECKPOINT_EVERY + 2), (await store.get(key(CHECKPOINT_EVERY + 2))).data[:-9])
    return key(CHECKPOINT_EVERY + 2)


async def no_json(store: MemoryObjectStore) -> str:
    await store.put(key(ENTRIES - 1), b"\xff\x00")
    return key(ENTRIES - 1)


async def unknown_version(store: MemoryObjectStore) -> str:
    data = (await store.get(key(ENTRIES - 1))).data.replace(b'"format_version":1', b'"format_version":9')
    await store.put(key(ENTRIES - 1), with_checksum(data[: data.index(b',"crc32"')] + b"}"))
    return key(ENTRIES - 1)


async def duplicated(store: MemoryObjectStore) -> str:
    await store.put(key(ENTRIES), (await store.get(key(ENTRIES - 1))).data)
    return key(ENTRIES)


async def swapped_checkpoint(store: MemoryObjectStore) -> str:
    one, other = (await store.get(key(CHECKPOINT_EVERY))).data, (await store.get(key(CHECKPOINT_EVERY + 1))).data
    await store.put(key(CHECKPOINT_EVERY), other)
    await store.put(key(CHECKPOINT_EVERY + 1), one)
    return key(CHECKPOINT_EVERY)


async def no_topic(store: MemoryObjectStore) -> str:
    number = ENTRIES - 1
    entry = decode_entry(key(number), (await store.get(key(number))).data)
    broken = msgspec.structs.replace(entry, changes=(Put("topics/x", msgspec.Raw(b'{"name":1}')),))
    await store.put(key(number), encode_entry(broken))
    return "meta/ topics/x"


def altered(data: bytes) -> bytes:
    """Valid JSON of a valid topic."""
    assert b'"retention.ms":"604800000"' in data
    return data.replace(b'"retention.ms":"604800000"', b'"retention.ms":"604800001"')


async def flipped(store: MemoryObjectStore) -> str:
    await store.put(key(ENTRIES - 1), altered((await store.get(key(ENTRIES - 1))).data))
    return key(ENTRIES - 1)


async def old_flipped(store: MemoryObjectStore) -> str:
    await store.put(key(5), altered((await store.get(key(5))).data))
    return key(5)


async def altered_before_a_checkpoint(store: MemoryObjectStore) -> str:
    """With a matching checksum, or none, like earlier entries: only the checkpoint shows the difference."""
    text = altered((await store.get(key(5))).data)
    await store.put(key(5), text[: text.index(b',"crc32"')] + b"}")
    return key(CHECKPOINT_EVERY)


Fault = Callable[[MemoryObjectStore], Awaitable[str]]
FAULTS: list[tuple[Fault, str, bool]] = [
    (hole, "is missing", False),
    (old_hole, "is missing", False),
    (truncated, "no journal entry", False),
    (no_json, "no journal entry", False),
    (unknown_version, "version 9 of the format", False),
    (duplicated, "duplicate", False),
    (swapped_checkpoint, "must carry a checkpoint", False),
    (no_topic, "is no topic", False),
    (flipped, "checksum", False),
    (old_flipped, "checksum", True),
    (altered_before_a_checkpoint, "one of them was altered", True),
]


@pytest.mark.parametrize(("fault", "cause", "only_deep"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_fault_is_named_by_key_and_cause(fault: Fault, cause: str, only_deep: bool) -> None:
    store = await a_journal()
    named = await fault(store)
    for deep in (True,) if only_deep else (False, True):
        found = await checked(store, deep=deep)
        here = [finding for finding in found if finding.key == named and cause in finding.text]
        assert [finding.severity for finding in here] == [Severity.ERROR], found


async def test_strangers_are_warned_of() -> None:
    store = await a_journal(2)
    await store.put("meta/notes.txt", b"x")
    assert [(finding.severity, finding.key) for finding in await checked(store)] == [
        (Severity.WARNING, "meta/notes.txt")
    ]


# ---- topics


async def test_a_topic_is_there_then_being_removed_then_deleted_for_certain() -> None:
    store = MemoryObjectStore()
    catalog = Catalog(journal := Journal(store, RUNTIME), RUNTIME)
    topics = JournalTopics(store, RUNTIME)
    assert await topics.topics() == {}
    web = await catalog.create("web", 3, {}, shard_count=2)
    known = (await topics.topics())[web.topic_id]
    assert (known.name, known.shards, known.removing) == ("web", web.shards, False)
    assert await topics.deleted([web.topic_id]) == set()
    await catalog.delete("web")
    assert (await topics.topics())[web.topic_id].removing
    await catalog.removed(web)
    assert await topics.topics() == {}
    assert await topics.deleted([web.topic_id, "never heard of"]) == {web.topic_id}
    assert journal.next_number == 3
