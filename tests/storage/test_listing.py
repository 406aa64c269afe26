"""The walk over a bucket's segments: by topic and shard, in pages that can be taken up again at any end."""

from __future__ import annotations

import pytest

from tidelog.storage.bucket.listing import SHARDS_MAX, SegmentPage, list_segments, shards_in
from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectStore
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.stores.memory import MemoryObjectStore


def place(topic: str, shard: int) -> SegmentPlace:
    """A topic of `TOPICS` in a shard."""
    return SegmentPlace(topic, f"{TOPICS.index(topic):032x}", shard)


TOPICS = ("web", "shop", "idle", "x")
COUNTS = {
    place("shop", 3): 2,
    place("web", 0): 2 * LIST_PAGE_MAX + 7,
    place("web", 3): LIST_PAGE_MAX,
    place("web", 10_000): 1,
}
EXPECTED = [
    place("idle", 0),
    place("web", 2),
    place("web", 3),
    place("x", 1),
]


@pytest.fixture
async def store() -> MemoryObjectStore:
    store = MemoryObjectStore()
    for where, count in COUNTS.items():
        for number in range(count):
            await store.put(where.key(f"{number:032x}"), b"")
    await store.put("topics/web/notes.txt", b"")
    return store


async def pages(store: ObjectStore, start_after: str = "") -> list[SegmentPage]:
    return [
        page async for page in list_segments(store, EXPECTED, start_after=start_after) if isinstance(page, SegmentPage)
    ]


async def test_each_segment_comes_once_in_pages_of_its_topic_and_shard(store: MemoryObjectStore) -> None:
    found = dict.fromkeys((*COUNTS, *EXPECTED), 0)
    for page in await pages(store):
        assert all(page.after < info.key <= page.end for info in page.infos)
        assert all(info.key.startswith(page.place.key("").removesuffix(".parquet")) for info in page.infos)
        found[page.place] += len(page.infos)
    assert found == dict.fromkeys(EXPECTED, 0) | COUNTS


async def test_an_object_that_is_no_segment_comes_by_itself(store: MemoryObjectStore) -> None:
    others = [item async for item in list_segments(store) if not isinstance(item, SegmentPage)]
    assert [info.key for info in others] == ["topics/web/notes.txt"]


async def test_a_walk_continues_after_any_page(store: MemoryObjectStore) -> None:
    whole = await pages(store)
    assert len(whole) == 9
    for at, page in enumerate(whole):
        assert await pages(store, page.end) == whole[at + 1 :]


async def test_a_topic_whose_rest_was_deleted_meanwhile_still_ends(store: MemoryObjectStore) -> None:
    last = place("web", 3).key(f"{LIST_PAGE_MAX:032x}")
    assert (await pages(store, last))[0] == SegmentPage(place("web", 3), (), last)


async def test_shards_have_a_log_or_a_manifest() -> None:
    store = MemoryObjectStore()
    for key in ("wal/0003/1", "manifests/0001/1", "manifests/0003/1", "manifests/notes/1", "wal/10000/1"):
        await store.put(key, b"")
    assert await shards_in(store) == [1, 3, 10_000]


async def test_only_folders_named_as_a_shards_are_shards_and_their_number_has_a_bound() -> None:
    store = MemoryObjectStore()
    for key in ("wal/00003/1", "manifests/0001.json", *(f"manifests/{shard:04d}/1" for shard in range(SHARDS_MAX))):
        await store.put(key, b"")
    assert len(await shards_in(store)) == SHARDS_MAX
    await store.put(f"wal/{SHARDS_MAX}/1", b"")
    with pytest.raises(Corrupt, match=f"more than {SHARDS_MAX} shards"):
        await shards_in(store)
