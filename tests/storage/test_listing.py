"""The walk over a bucket's segments: by topic and shard, in pages that can be taken up again at any end."""

from __future__ import annotations

import pytest

from tidelog.storage.bucket.listing import SegmentPage, TopicFolder, TopicName, list_segments, shards_in
from tidelog.storage.layout import shard_segment_key
from tidelog.storage.object_store import LIST_PAGE_MAX, ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore

WEB, SHOP, IDLE = (TopicName(name, f"{at:032x}") for at, name in enumerate(("web", "shop", "idle")))
COUNTS = {
    TopicFolder(SHOP, 3): 2,
    TopicFolder(WEB, 0): 2 * LIST_PAGE_MAX + 7,
    TopicFolder(WEB, 3): LIST_PAGE_MAX,
    TopicFolder(WEB, 10_000): 1,
}
EXPECTED = [
    TopicFolder(IDLE, 0),
    TopicFolder(WEB, 2),
    TopicFolder(WEB, 3),
    TopicFolder(TopicName("x", "f" * 32), 1),
]


@pytest.fixture
async def store() -> MemoryObjectStore:
    store = MemoryObjectStore()
    for place, count in COUNTS.items():
        for number in range(count):
            await store.put(
                shard_segment_key(place.name.topic, place.name.topic_id, place.shard, f"{number:032x}"), b""
            )
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
        assert all(info.key.startswith(page.place.prefix) for info in page.infos)
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
    place = TopicFolder(WEB, 3)
    last = shard_segment_key("web", WEB.topic_id, 3, f"{LIST_PAGE_MAX:032x}")
    assert (await pages(store, last))[0] == SegmentPage(place, (), last)


async def test_shards_have_a_log_or_a_manifest() -> None:
    store = MemoryObjectStore()
    for key in ("wal/0003/1", "manifests/0001/1", "manifests/0003/1", "manifests/notes/1", "wal/10000/1"):
        await store.put(key, b"")
    assert [shard async for shard in shards_in(store)] == [1, 3, 10_000]
