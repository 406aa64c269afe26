"""The counting wrapper counts requests and bytes by verb and by purpose."""

from __future__ import annotations

import pytest

from tidelog.storage import layout
from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.object_store import DELETE_BATCH_MAX, ByteRange
from tidelog.storage.stores import counting
from tidelog.storage.stores.counting import (
    OTHER,
    CountingObjectStore,
    Kind,
    Purpose,
    Tally,
    purpose_of,
)
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


async def test_each_call_is_one_request_of_its_verb_with_its_bytes() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    version = await store.create("wal/0000/a", b"12345")
    await store.put("wal/0000/a", memoryview(b"1234567"), if_version=version)
    await store.get("wal/0000/a", ByteRange(2, 3))
    await store.head("wal/0000/a")
    await store.list("wal/")
    await store.delete("wal/0000/a")
    usage = store.usage()
    assert usage.total(Verb.CREATE) == Tally(requests=1, sent_bytes=5)
    assert usage.total(Verb.PUT) == Tally(requests=1, sent_bytes=7)
    assert usage.total(Verb.GET) == Tally(requests=1, received_bytes=3)
    assert [usage.requests(verb) for verb in (Verb.HEAD, Verb.LIST, Verb.DELETE)] == [1, 1, 1]
    assert usage.requests(kind=Kind.WAL) == usage.requests() == 6


async def test_a_delete_of_many_is_one_request_for_each_thousand() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    await store.delete_many([f"wal/0000/{number}" for number in range(2 * DELETE_BATCH_MAX + 1)])
    assert store.usage().requests(Verb.DELETE) == store.usage().requests(kind=Kind.WAL) == 3


async def test_a_refused_request_is_counted_too() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    await store.create("a", b"1")
    with pytest.raises(Conflict):
        await store.create("a", b"1")
    with pytest.raises(NotFound):
        await store.get("b")
    assert store.usage().total(Verb.CREATE) == Tally(requests=2, failures=1, sent_bytes=2)
    assert store.usage().total(Verb.GET) == Tally(requests=1, failures=1)


async def test_usage_is_a_value_and_what_was_spent_is_a_difference() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    await store.put("a", b"1")
    before = store.usage()
    await store.put("a", b"22")
    await store.put("b", b"333")
    assert (store.usage() - before).total(Verb.PUT) == Tally(requests=2, sent_bytes=5)
    assert before.total(Verb.PUT) == Tally(requests=1, sent_bytes=1)


@pytest.mark.parametrize(
    ("key", "purpose"),
    [
        (layout.wal_prefix(3), Purpose(Kind.WAL)),
        (layout.shard_segment_key("web", "id", 4, "ab"), Purpose(Kind.SEGMENT, "web")),
        (layout.manifests_prefix(4) + "x.json", Purpose(Kind.MANIFEST)),
        (layout.list_key(4, "id", "ab"), Purpose(Kind.MANIFEST)),
        ("topics/", Purpose(Kind.SEGMENT)),
        ("meta/1.json", Purpose(Kind.META)),
        ("groups/embedded/1.json", Purpose(Kind.GROUPS)),
        ("elsewhere", OTHER),
        ("", OTHER),
    ],
)
def test_the_purpose_of_an_object_follows_from_its_key(key: str, purpose: Purpose) -> None:
    assert purpose_of(key) == purpose


async def test_topics_without_end_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PURPOSES_MAX", 5)
    store = CountingObjectStore(MemoryObjectStore())
    for number in range(9):
        await store.put(f"topics/t{number}/x", b"")
    await store.put("topics/t0/x", b"")
    usage = store.usage()
    assert len(usage.tallies) == 6
    assert usage.requests() == 10
    assert usage.requests(topic="t0") == 2
    assert usage.requests(kind=Kind.OTHER) == 4
