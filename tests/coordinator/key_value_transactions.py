"""The conformance tests for transactions of a `KeyValueStore`; a part of `key_value_conformance`."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.coordinator.kv.key_value import (
    AtRevision,
    DeleteKey,
    GetKey,
    HasValue,
    KeyValue,
    KeyValueStore,
    LeaseLost,
    PutKey,
    absent,
    unchanged,
)
from tidelog.storage.errors import Invalid

RACERS = 16
RACES = 5


class TransactionConformance:
    """Tests each sentence of the contract of transact."""

    async def test_true_compares_do_then(self, store: KeyValueStore, prefix: str) -> None:
        result = await store.transact(
            [absent(prefix + "a")], [PutKey(prefix + "a", b"then")], [PutKey(prefix + "b", b"")]
        )
        item = await _present(store, prefix + "a")
        assert result.succeeded
        assert (item.value, item.mod_revision) == (b"then", result.revision)
        assert await store.get(prefix + "b") is None

    async def test_a_false_compare_does_otherwise(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"there")
        result = await store.transact(
            [absent(prefix + "b"), absent(prefix + "a")],
            [PutKey(prefix + "a", b"then")],
            [PutKey(prefix + "b", b"else")],
        )
        assert not result.succeeded
        assert (await _present(store, prefix + "a")).value == b"there"
        assert (await _present(store, prefix + "b")).value == b"else"

    async def test_without_compares_then_is_done(self, store: KeyValueStore, prefix: str) -> None:
        assert (await store.transact([], [PutKey(prefix + "a", b"")])).succeeded

    async def test_a_value_and_a_revision_are_compared(self, store: KeyValueStore, prefix: str) -> None:
        key = prefix + "a"
        created = await store.put(key, b"first")
        modified = await store.put(key, b"second")
        for right in (HasValue(key, b"second"), AtRevision(key, modified)):
            assert (await store.transact([right], [])).succeeded, right
        for wrong in (HasValue(key, b"first"), AtRevision(key, created), AtRevision(key, 0)):
            assert not (await store.transact([wrong], [])).succeeded, wrong

    async def test_an_absent_key_is_at_revision_0_and_has_no_value(self, store: KeyValueStore, prefix: str) -> None:
        assert (await store.transact([AtRevision(prefix + "a", 0)], [])).succeeded
        assert not (await store.transact([HasValue(prefix + "a", b"")], [])).succeeded

    async def test_a_key_that_was_read_is_changed_only_if_unchanged(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"first")
        read = await _present(store, prefix + "a")
        assert (await store.transact([unchanged(read)], [PutKey(prefix + "a", b"second")])).succeeded
        assert not (await store.transact([unchanged(read)], [PutKey(prefix + "a", b"third")])).succeeded
        assert (await _present(store, prefix + "a")).value == b"second"

    async def test_answers_stand_in_the_order_of_the_questions(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "a", b"a")
        await store.put(prefix + "c", b"c")
        asked = [GetKey(prefix + name) for name in ("c", "b", "a")]
        done = await store.transact([], [asked[0], PutKey(prefix + "d", b"d"), *asked[1:], DeleteKey(prefix + "e")])
        refused = await store.transact([absent(prefix + "a")], [PutKey(prefix + "d", b"")], asked)
        for result in (done, refused):
            assert [None if item is None else item.value for item in result.found] == [b"c", None, b"a"]

    async def test_the_changes_of_a_transaction_have_one_revision(self, store: KeyValueStore, prefix: str) -> None:
        await store.put(prefix + "old", b"")
        result = await store.transact(
            [], [PutKey(prefix + "a", b""), PutKey(prefix + "b", b""), DeleteKey(prefix + "old")]
        )
        items = (await store.range(prefix)).items
        assert [(item.key, item.mod_revision) for item in items] == [
            (prefix + "a", result.revision),
            (prefix + "b", result.revision),
        ]

    async def test_a_key_changed_twice_is_refused_and_nothing_is_done(self, store: KeyValueStore, prefix: str) -> None:
        a = prefix + "a"
        for second in (PutKey(a, b"2"), DeleteKey(a)):
            with pytest.raises(Invalid):
                await store.transact([], [PutKey(prefix + "b", b""), PutKey(a, b"1"), second])
        assert (await store.range(prefix)).items in ([], ())

    async def test_a_key_may_stand_in_both_branches(self, store: KeyValueStore, prefix: str) -> None:
        a = prefix + "a"
        result = await store.transact([absent(a)], [PutKey(a, b"then")], [PutKey(a, b"else")])
        assert result.succeeded

    async def test_an_unknown_lease_is_refused_and_nothing_is_done(self, store: KeyValueStore, prefix: str) -> None:
        lease = await store.grant(60.0)
        await store.revoke(lease.lease_id)
        with pytest.raises(LeaseLost):
            await store.transact([], [PutKey(prefix + "a", b""), PutKey(prefix + "b", b"", lease_id=lease.lease_id)])
        assert (await store.range(prefix)).items in ([], ())

    async def test_of_racers_one_wins(self, store: KeyValueStore, prefix: str) -> None:
        for race in range(RACES):
            key = f"{prefix}{race}"
            results = await asyncio.gather(
                *(store.transact([absent(key)], [PutKey(key, b"%d" % racer)], [GetKey(key)]) for racer in range(RACERS))
            )
            won = [racer for racer, result in enumerate(results) if result.succeeded]
            assert len(won) == 1
            assert (await _present(store, key)).value == b"%d" % won[0]
            seen = {item.value for result in results for item in result.found if item is not None}
            assert seen == {b"%d" % won[0]}

    async def test_counting_by_compare_and_put_loses_nothing(self, store: KeyValueStore, prefix: str) -> None:
        key = prefix + "count"
        await store.put(key, b"0")

        async def add_one() -> None:
            while True:
                read = await _present(store, key)
                added = PutKey(key, b"%d" % (int(read.value) + 1))
                if (await store.transact([unchanged(read)], [added])).succeeded:
                    return

        await asyncio.gather(*(add_one() for _ in range(8)))
        item = await _present(store, key)
        assert (item.value, item.version) == (b"8", 9)


async def _present(store: KeyValueStore, key: str) -> KeyValue:
    item = await store.get(key)
    assert item is not None, key
    return item
