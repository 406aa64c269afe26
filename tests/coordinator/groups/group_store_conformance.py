"""The conformance suite that every `GroupStore` must pass, as a pytest class.

The tests of a store subclass it and give a fixture `open_next`, which opens a store for the next leadership over the
same keys: the stores opened before are then those of leaders that were paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import pytest

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.stored import head_key, instance_key, member_key, offset_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import Fenced

OpenNext: TypeAlias = Callable[[], Awaitable[GroupStore]]


def put(key: str, value: str) -> Change:
    return PutKey(key, value.encode())


def offsets(group: str, count: int, value: str) -> list[Change]:
    return [put(offset_key(group, "web", number), value) for number in range(count)]


class GroupStoreConformance:
    @pytest.fixture
    async def store(self, open_next: OpenNext) -> GroupStore:
        return await open_next()

    async def test_an_unknown_group_is_empty(self, store: GroupStore) -> None:
        assert await store.load("nobody") == {}

    async def test_a_group_that_was_written_is_loaded_whole(self, store: GroupStore, open_next: OpenNext) -> None:
        written = {
            head_key("g"): b"\x00head\xff",
            offset_key("g", "web", 3): b"17",
            member_key("g", "m-1"): b"",
            instance_key("g", "i/1"): bytes(range(256)),
        }
        await store.write([PutKey(key, value) for key, value in written.items()])
        assert await store.load("g") == written
        assert await (await open_next()).load("g") == written

    async def test_a_deleted_key_is_gone(self, store: GroupStore, open_next: OpenNext) -> None:
        await store.write([put(head_key("g"), "1"), put(offset_key("g", "web", 0), "5")])
        await store.write([DeleteKey(offset_key("g", "web", 0)), DeleteKey(offset_key("g", "web", 1))])
        for each in (store, await open_next()):
            assert await each.load("g") == {head_key("g"): b"1"}

    async def test_the_last_change_of_a_key_counts(self, store: GroupStore, open_next: OpenNext) -> None:
        one, other = offset_key("g", "web", 0), offset_key("g", "web", 1)
        await store.write([put(one, "1"), put(other, "1"), put(one, "2"), DeleteKey(other)])
        await store.write([put(one, "3")])
        for each in (store, await open_next()):
            assert await each.load("g") == {one: b"3"}

    async def test_no_changes_change_nothing(self, store: GroupStore) -> None:
        await store.write([])
        assert await store.load("g") == {}

    @pytest.mark.parametrize("name", ["a/b", "a", "a%2Fb", "ünïcödé", " ", ".", "..", "a" * 200])
    async def test_a_group_of_any_name_has_only_its_own_keys(
        self, store: GroupStore, open_next: OpenNext, name: str
    ) -> None:
        await store.write([put(head_key(group), group) for group in ("a", "a/", "ab", "zz", name, name + "0")])
        for each in (store, await open_next()):
            assert await each.load(name) == {head_key(name): name.encode()}
            assert name in (await each.heads("", 100)).heads

    async def test_a_write_larger_than_a_transaction_is_written_whole(
        self, store: GroupStore, open_next: OpenNext
    ) -> None:
        changes = [change for group in ("g", "h") for change in offsets(group, 400, "x" * 3_000)]
        await store.write(changes)
        for each in (store, await open_next()):
            for group in ("g", "h"):
                assert len(await each.load(group)) == 400

    async def test_heads_come_in_pages_in_one_order(self, store: GroupStore, open_next: OpenNext) -> None:
        names = [f"g {number}/%é" for number in range(7)] + ["", "A", "~"]
        names.remove("")
        await store.write([put(head_key(name), name) for name in names] + offsets("only offsets", 2, "1"))
        for each in (store, await open_next()):
            seen: list[str] = []
            more = True
            while more:
                page = await each.heads(seen[-1] if seen else "", 2)
                assert len(page.heads) == min(2, len(names) - len(seen))
                assert all(value == name.encode() for name, value in page.heads.items())
                seen += page.heads
                more = page.more
            assert sorted(seen) == sorted(names)

    async def test_writes_at_the_same_time_take_effect_in_their_order(
        self, store: GroupStore, open_next: OpenNext
    ) -> None:
        await asyncio.gather(*(store.write(offsets("g", 3, str(number))) for number in range(20)))
        for each in (store, await open_next()):
            assert set((await each.load("g")).values()) == {b"19"}

    async def test_a_store_of_an_earlier_leadership_is_fenced(self, store: GroupStore, open_next: OpenNext) -> None:
        await store.write(offsets("g", 1, "1"))
        later = await open_next()
        assert await later.load("g") == {offset_key("g", "web", 0): b"1"}
        await later.write(offsets("g", 1, "2"))
        await refused(store, offsets("g", 1, "3"))
        await refused(store, offsets("h", 1, "3"))
        for each in (later, await open_next()):
            assert await each.load("g") == {offset_key("g", "web", 0): b"2"}
            assert await each.load("h") == {}

    async def test_a_later_leadership_fences_although_it_has_written_nothing(
        self, store: GroupStore, open_next: OpenNext
    ) -> None:
        await store.write(offsets("g", 1, "1"))
        later = await open_next()
        await later.load("g")
        await refused(store, offsets("g", 1, "2"))
        assert await later.load("g") == {offset_key("g", "web", 0): b"1"}


async def refused(store: GroupStore, changes: Sequence[Change]) -> None:
    with pytest.raises(Fenced, match="another"):
        await store.write(changes)
