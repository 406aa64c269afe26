"""The conformance suite that every `ObjectStore` must pass, as a pytest class.

The tests of a store subclass it and give a fixture `store`, an empty store of their kind:

    class TestMemory(ObjectStoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[ObjectStore]:
            store = MemoryObjectStore()
            yield store
            await store.aclose()
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.storage.stores.conformance_cases import BAD_KEYS, CONTENT, RANGES, WEIRD_KEYS

from tidelog.storage.errors import Conflict, Contended, Invalid, NotFound
from tidelog.storage.object_store import DELETE_BATCH_MAX, LIST_PAGE_MAX, Body, ByteRange, ObjectStore, list_all

RACERS = 16
RACES = 10
LARGE_BYTES = 9 * 1_024 * 1_024 + 7


class ObjectStoreConformance:
    """Tests each sentence of the contract of `tidelog.storage.object_store`."""

    versions_follow_content = True
    """Whether equal bytes have equal versions, as on S3. A store may instead give each write its own version."""

    async def test_a_created_object_is_read_back(self, store: ObjectStore) -> None:
        version = await store.create("a/b", CONTENT)
        stored = await store.get("a/b")
        assert stored.data == CONTENT
        assert stored.info == await store.head("a/b")
        assert (stored.info.key, stored.info.size, stored.info.version) == ("a/b", len(CONTENT), version)

    async def test_modified_is_a_time_of_this_century_in_milliseconds(self, store: ObjectStore) -> None:
        await store.put("a", CONTENT)
        assert 1_000_000_000_000 < (await store.head("a")).modified_ms < 4_000_000_000_000

    async def test_a_create_of_an_existing_key_conflicts_and_changes_nothing(self, store: ObjectStore) -> None:
        version = await store.create("a", b"first")
        with pytest.raises(Conflict):
            await store.create("a", b"second")
        stored = await store.get("a")
        assert (stored.data, stored.info.version) == (b"first", version)

    async def test_a_create_over_a_put_conflicts(self, store: ObjectStore) -> None:
        await store.put("a", b"first")
        with pytest.raises(Conflict):
            await store.create("a", b"second")

    async def test_of_racing_creates_one_wins(self, store: ObjectStore) -> None:
        for race in range(RACES):
            bodies = [b"writer %d" % writer for writer in range(RACERS)]
            won = await asyncio.gather(*(_creates(store, f"race/{race}", body) for body in bodies))
            assert won.count(True) == 1
            assert (await store.get(f"race/{race}")).data == bodies[won.index(True)]

    async def test_a_deleted_key_can_be_created_again(self, store: ObjectStore) -> None:
        await store.create("a", b"first")
        await store.delete("a")
        await store.create("a", b"second")
        assert (await store.get("a")).data == b"second"

    async def test_a_put_replaces(self, store: ObjectStore) -> None:
        first = await store.put("a", b"first, and longer")
        second = await store.put("a", b"second")
        stored = await store.get("a")
        assert (stored.data, stored.info.size, stored.info.version) == (b"second", 6, second)
        assert first != second

    async def test_a_put_with_the_version_replaces(self, store: ObjectStore) -> None:
        version = await store.create("a", b"first")
        newer = await store.put("a", b"second", if_version=version)
        assert (await store.get("a")).data == b"second"
        await store.put("a", b"third", if_version=newer)
        assert (await store.get("a")).data == b"third"

    async def test_the_same_bytes_have_the_same_version_where_the_store_is_like_s3(self, store: ObjectStore) -> None:
        """The simulation's store must not be safer than S3: on S3, an unchanged version does not prove that nothing was
        written meanwhile."""
        if not self.versions_follow_content:
            return
        first = await store.create("a", b"one")
        await store.put("a", b"another")
        assert await store.put("a", b"one") == first
        await store.delete("a")
        assert await store.create("a", b"one") == first
        await store.put("a", b"another", if_version=first)

    async def test_a_put_with_another_version_conflicts(self, store: ObjectStore) -> None:
        old = await store.create("a", b"first")
        await store.put("a", b"second")
        with pytest.raises(Conflict):
            await store.put("a", b"third", if_version=old)
        assert (await store.get("a")).data == b"second"

    async def test_a_put_with_a_version_of_an_absent_key_conflicts(self, store: ObjectStore) -> None:
        version = await store.create("a", b"first")
        await store.delete("a")
        with pytest.raises(Conflict):
            await store.put("a", b"second", if_version=version)
        with pytest.raises(NotFound):
            await store.head("a")

    async def test_of_racing_puts_of_a_version_one_wins(self, store: ObjectStore) -> None:
        for race in range(RACES):
            version = await store.put("a", b"race %d" % race)
            bodies = [b"race %d, writer %d" % (race, writer) for writer in range(RACERS)]
            won = await asyncio.gather(*(_replaces(store, "a", body, version) for body in bodies))
            assert won.count(True) == 1
            assert (await store.get("a")).data == bodies[won.index(True)]

    async def test_the_version_in_a_listing_is_the_one_to_replace(self, store: ObjectStore) -> None:
        await store.create("a", b"first")
        (listed,) = await store.list("a")
        await store.put("a", b"second", if_version=listed.version)
        assert (await store.get("a")).data == b"second"

    @pytest.mark.parametrize(("byte_range", "expected"), RANGES, ids=repr)
    async def test_ranges(self, store: ObjectStore, byte_range: ByteRange, expected: bytes) -> None:
        await store.create("a", CONTENT)
        stored = await store.get("a", byte_range)
        assert stored.data == expected
        assert stored.info == await store.head("a")

    @pytest.mark.parametrize("byte_range", [ByteRange(0), ByteRange(0, 1), ByteRange(-1)], ids=repr)
    async def test_any_range_of_an_empty_object_is_empty(self, store: ObjectStore, byte_range: ByteRange) -> None:
        await store.create("empty", b"")
        assert (await store.get("empty", byte_range)).data == b""
        assert (await store.get("empty")).data == b""
        assert (await store.head("empty")).size == 0

    async def test_an_absent_key_is_not_found(self, store: ObjectStore) -> None:
        await store.create("a/b", b"")
        for absent in ("b", "a/c", "a", "a/b/c"):
            with pytest.raises(NotFound):
                await store.get(absent)
            with pytest.raises(NotFound):
                await store.get(absent, ByteRange(0, 1))
            with pytest.raises(NotFound):
                await store.head(absent)

    async def test_deleting_an_absent_key_is_no_error(self, store: ObjectStore) -> None:
        await store.create("a/b", b"")
        for absent in ("b", "a", "a/b/c"):
            await store.delete(absent)
        assert [info.key for info in await store.list("")] == ["a/b"]

    async def test_many_are_deleted_and_absent_ones_are_no_error(self, store: ObjectStore) -> None:
        keys = [*WEIRD_KEYS, "many/1", "many/2"]
        for key in (*keys, "many/11"):
            await store.create(key, b"")
        await store.delete_many([*keys, "many/absent", "absent"])
        assert [info.key for info in await store.list("")] == ["many/11"]
        await store.delete_many(keys)
        await store.delete_many([])

    async def test_more_are_deleted_than_one_request_takes(self, store: ObjectStore) -> None:
        await asyncio.gather(store.create("a", b""), store.create("z", b""))
        absent = [f"n/{number:05d}" for number in range(DELETE_BATCH_MAX)]
        await store.delete_many(["a", *absent, "z"])
        assert list(await store.list("")) == []

    @pytest.mark.parametrize(
        "body",
        [bytearray(CONTENT), memoryview(CONTENT), memoryview(b"x" + CONTENT)[1:]],
        ids=["bytearray", "view", "part of a view"],
    )
    async def test_bodies_of_every_kind(self, store: ObjectStore, body: Body) -> None:
        await store.create("created", body)
        await store.put("put", body)
        assert (await store.get("created")).data == (await store.get("put")).data == CONTENT

    async def test_a_view_of_wide_items_is_its_bytes(self, store: ObjectStore) -> None:
        wide = memoryview(CONTENT).cast("B").cast("H")
        await store.create("a", wide)
        assert (await store.get("a")).data == CONTENT
        assert (await store.head("a")).size == len(CONTENT)

    async def test_large_bodies(self, store: ObjectStore) -> None:
        body = bytes(range(251)) * (LARGE_BYTES // 251 + 1)
        await store.create("large", memoryview(body)[:LARGE_BYTES])
        stored = await store.get("large")
        assert stored.info.size == LARGE_BYTES
        assert stored.data == body[:LARGE_BYTES]
        assert (await store.get("large", ByteRange(LARGE_BYTES - 5, 99))).data == body[LARGE_BYTES - 5 : LARGE_BYTES]

    async def test_a_list_is_ascending_by_the_keys_bytes(self, store: ObjectStore) -> None:
        keys = ["a", "a-b", "a.c", "ab", "b-c", "b/-", "b0", "B", "b/x.y/z", "b/x/z"]
        for key in keys:
            await store.create(key, b"")
        assert [info.key for info in await store.list("")] == sorted(keys)

    async def test_a_prefix_is_a_plain_beginning(self, store: ObjectStore) -> None:
        for key in ("wal/0", "wal/00", "wal/1/x", "wal/10/x", "walk", "w", "z/wal/1"):
            await store.create(key, b"")

        async def keys(prefix: str) -> list[str]:
            return [info.key for info in await store.list(prefix)]

        assert await keys("wal/") == ["wal/0", "wal/00", "wal/1/x", "wal/10/x"]
        assert await keys("wal/1") == ["wal/1/x", "wal/10/x"]
        assert await keys("wal/1/") == ["wal/1/x"]
        assert await keys("wal/1/x") == ["wal/1/x"]
        assert await keys("wal/1/x/") == []
        assert await keys("wal") == ["wal/0", "wal/00", "wal/1/x", "wal/10/x", "walk"]
        assert await keys("nothing/here") == []

    @pytest.mark.parametrize("prefix", ["../", "/", "a//", "./", "a/../", "~"])
    async def test_a_prefix_that_no_key_has_lists_nothing(self, store: ObjectStore, prefix: str) -> None:
        await store.create("a/b", b"")
        assert list(await store.list(prefix)) == []

    async def test_pages_give_each_key_once(self, store: ObjectStore) -> None:
        keys = [*sorted(f"p/{number % 7}/{number:03d}" for number in range(40)), "q"]
        await asyncio.gather(*(store.create(key, key.encode()) for key in keys))
        found: list[str] = []
        while page := await store.list("p/", start_after=found[-1] if found else "", limit=7):
            found += [info.key for info in page]
            assert all(info.size == len(info.key) for info in page)
        assert found == keys[:-1]

    async def test_a_list_starts_beyond_any_text(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "a/3/x", "b"):
            await store.create(key, b"")

        async def keys(start_after: str) -> list[str]:
            return [info.key for info in await store.list("", start_after=start_after)]

        assert await keys("a/1") == ["a/2", "a/3/x", "b"]
        assert await keys("a/") == ["a/1", "a/2", "a/3/x", "b"]
        assert await keys("a/3") == ["a/3/x", "b"]
        assert await keys("a/3/x") == ["b"]
        assert await keys("a/9") == ["b"]
        assert await keys("b") == []

    @pytest.mark.parametrize("limit", [0, -1, LIST_PAGE_MAX + 1])
    async def test_a_page_out_of_its_limits_is_invalid(self, store: ObjectStore, limit: int) -> None:
        with pytest.raises(Invalid):
            await store.list("", limit=limit)

    async def test_list_all_goes_through_every_page(self, store: ObjectStore) -> None:
        many = LIST_PAGE_MAX + 3
        for start in range(0, many, 64):
            numbers = range(start, min(start + 64, many))
            await asyncio.gather(*(store.put(f"n/{number:05d}", b"") for number in numbers))
        assert [info.key async for info in list_all(store, "n/")] == [f"n/{number:05d}" for number in range(many)]

    @pytest.mark.parametrize("key", WEIRD_KEYS, ids=range(len(WEIRD_KEYS)))
    async def test_weird_keys(self, store: ObjectStore, key: str) -> None:
        version = await store.create(key, CONTENT)
        assert (await store.get(key)).data == CONTENT
        (listed,) = await store.list(key)
        assert (listed.key, listed.size, listed.version) == (key, len(CONTENT), version)
        assert await store.head(key) == (await store.get(key)).info
        await store.put(key, b"", if_version=version)
        await store.delete(key)
        assert list(await store.list("")) == []

    async def test_a_bad_key_is_invalid_in_every_call(self, store: ObjectStore) -> None:
        for key in BAD_KEYS:
            for call in (
                store.get(key),
                store.put(key, b""),
                store.create(key, b""),
                store.delete(key),
                store.delete_many(["a", key]),
                store.head(key),
            ):
                with pytest.raises(Invalid):
                    await call

    async def test_closing_twice_is_no_error(self, store: ObjectStore) -> None:
        await store.create("a", b"")
        await store.aclose()
        await store.aclose()


async def _creates(store: ObjectStore, key: str, body: bytes) -> bool:
    return await _wins(lambda: store.create(key, body))


async def _replaces(store: ObjectStore, key: str, body: bytes, version: str) -> bool:
    return await _wins(lambda: store.put(key, body, if_version=version))


async def _wins(write: Callable[[], Awaitable[str]]) -> bool:
    """Whether `write` took effect. A contended write did nothing and is sent again."""
    while True:
        try:
            await write()
        except Contended:
            continue
        except Conflict:
            return False
        return True
