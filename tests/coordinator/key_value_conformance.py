"""The conformance suite that every `KeyValueStore` must pass, as a pytest class.

The tests of a store subclass it, give a fixture `store`, and say how to discard history:

    class TestEmbedded(KeyValueConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[KeyValueStore]: ...

        async def forget(self, store: KeyValueStore, revision: int) -> None: ...

The store need not be empty: each test uses its own prefix.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.coordinator.key_value_leases import LeaseConformance
from tests.coordinator.key_value_transactions import TransactionConformance
from tests.coordinator.key_value_watches import WatchConformance

from tidelog.coordinator.kv.key_value import Compacted, KeyValueStore
from tidelog.storage.errors import Invalid

BINARY = bytes(range(256)) * 4
TEXTS = ("ünïcödé/ключ/キー", "with blank", "a'\"\\b", "percent%2Fs", "\x7f", "🌊")


class ReadAndWriteConformance:
    """Tests each sentence of the contract of get, range, put and delete."""

    async def forget(self, store: KeyValueStore, revision: int) -> None:
        """Let the store discard history before `revision`; it may discard more, up to now."""
        raise NotImplementedError

    @pytest.fixture
    def prefix(self) -> str:
        """A prefix for this test only."""
        return f"/test-{uuid.uuid4().hex}/"

    async def test_a_value_that_was_put_is_read_back(self, store: KeyValueStore, prefix: str) -> None:
        revision = await store.put(prefix + "a", b"value")
        item = await store.get(prefix + "a")
        assert item is not None
        assert (item.key, item.value, item.version, item.lease_id) == (prefix + "a", b"value", 1, 0)
        assert item.create_revision == item.mod_revision == revision

    async def test_an_absent_key_is_none(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "ab", b"")
        assert await store.get(prefix + "a") is None

    async def test_a_second_put_replaces_and_counts(self, store: KeyValueStore, prefix: str) -> None:
        first = await store.put(prefix + "a", b"first")
        second = await store.put(prefix + "a", b"second")
        item = await store.get(prefix + "a")
        assert item is not None
        assert (item.value, item.version, item.create_revision, item.mod_revision) == (b"second", 2, first, second)
        assert second > first

    async def test_values_are_bytes_of_any_kind(self, store: KeyValueStore, prefix: str) -> None:
        for name, value in {"empty": b"", "binary": BINARY, "large": BINARY * 512}.items():
            await store.put(prefix + name, value)
            item = await store.get(prefix + name)
            assert item is not None
            assert item.value == value

    async def test_keys_are_text_of_any_kind(self, store: KeyValueStore, prefix: str) -> None:
        for text in TEXTS:
            await store.put(prefix + text, text.encode())
        found = (await store.range(prefix)).items
        assert [item.key for item in found] == sorted((prefix + text for text in TEXTS), key=str.encode)
        assert all(item.key == prefix + item.value.decode() for item in found)

    async def test_an_empty_key_is_refused(self, store: KeyValueStore) -> None:
        with pytest.raises(Invalid):
            await store.put("", b"value")

    async def test_a_delete_says_whether_the_key_was_there(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"value")
        assert await store.delete(prefix + "a") is True
        assert await store.get(prefix + "a") is None
        assert await store.delete(prefix + "a") is False

    async def test_a_key_put_after_a_delete_begins_again(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"first")
        await store.put(prefix + "a", b"second")
        await store.delete(prefix + "a")
        revision = await store.put(prefix + "a", b"third")
        item = await store.get(prefix + "a")
        assert item is not None
        assert (item.version, item.create_revision, item.mod_revision) == (1, revision, revision)

    async def test_a_range_ends_with_its_prefix(self, store: KeyValueStore, prefix: str) -> None:
        for name in ("a", "a/", "a/1", "a/2", "a/\U0010ffff", "a0", "b"):
            await store.put(prefix + name, b"")
        page = await store.range(prefix + "a/")
        assert [item.key for item in page.items] == [prefix + name for name in ("a/", "a/1", "a/2", "a/\U0010ffff")]
        assert not page.more
        assert (await store.range(prefix + "c")).items in ([], ())

    async def test_a_range_without_a_prefix_is_everything(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"")
        page = await store.range("", limit=10_000)
        assert prefix + "a" in [item.key for item in page.items]

    async def test_pages_of_one_revision_fit_together(self, store: KeyValueStore, prefix: str) -> None:
        names = [f"{prefix}{number:03d}" for number in range(25)]
        for name in names:
            await store.put(name, b"old")
        page = await store.range(prefix, limit=10)
        revision, seen = page.revision, list(page.items)
        await store.put(names[20], b"new")
        await store.delete(names[21])
        await store.put(prefix + "0205", b"new")
        while page.more:
            page = await store.range(prefix, limit=10, after=page.items[-1].key, revision=revision)
            assert len(page.items) <= 10
            seen.extend(page.items)
        assert [(item.key, item.value) for item in seen] == [(name, b"old") for name in names]

    async def test_a_full_last_page_says_that_there_is_no_more(self, store: KeyValueStore, prefix: str) -> None:
        for number in range(4):
            await store.put(f"{prefix}{number}", b"")
        first = await store.range(prefix, limit=2)
        last = await store.range(prefix, limit=2, after=first.items[-1].key)
        assert (len(first.items), first.more, len(last.items), last.more) == (2, True, 2, False)

    async def test_a_key_that_changes_under_the_pages_is_read_as_it_was(
        self, store: KeyValueStore, prefix: str
    ) -> None:
        revision = await store.put(prefix + "a", b"old")
        await store.put(prefix + "a", b"new")
        (then,) = (await store.range(prefix, revision=revision)).items
        assert then.value == b"old"

    async def test_a_forgotten_revision_is_distinguished(self, store: KeyValueStore, prefix: str) -> None:
        old = await store.put(prefix + "a", b"old")
        new = await store.put(prefix + "a", b"new")
        await self.forget(store, new)
        with pytest.raises(Compacted):
            await store.range(prefix, revision=old)
        (now,) = (await store.range(prefix)).items
        assert now.value == b"new"

    async def test_calls_run_side_by_side(self, store: KeyValueStore, prefix: str) -> None:
        revisions = await asyncio.gather(*(store.put(f"{prefix}{number}", b"%d" % number) for number in range(50)))
        assert len(set(revisions)) == 50
        found = await asyncio.gather(*(store.get(f"{prefix}{number}") for number in range(50)))
        assert [item.value for item in found if item is not None] == [b"%d" % number for number in range(50)]

    async def test_the_incarnation_stays(self, store: KeyValueStore, prefix: str) -> None:
        before = await store.incarnation()
        await store.put(prefix + "a", b"")
        assert before
        assert await store.incarnation() == before


class KeyValueConformance(ReadAndWriteConformance, TransactionConformance, LeaseConformance, WatchConformance):
    """The contract of `tidelog.coordinator.kv.key_value`."""
