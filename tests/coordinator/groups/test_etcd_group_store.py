"""`EtcdGroupStore`: the contract on a real etcd and in memory, its fence, its transactions, lost answers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.components.etcd_server import EtcdServer
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS, Leaderships
from tests.coordinator.groups.group_store_conformance import GroupStoreConformance, OpenNext, put

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_transactions import OPERATIONS_MAX, TRANSACTION_BYTES_MAX, cut
from tidelog.coordinator.groups.stored import group_of, member_key, offset_key
from tidelog.coordinator.kv.key_value import Compare, KeyValueStore, Operation, PutKey, TransactionResult
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.runtime import Runtime


class _OnKeyValues(GroupStoreConformance):
    @pytest.fixture
    async def open_next(self, kv: KeyValueStore) -> OpenNext:
        leaderships = Leaderships(kv, f"test-{uuid.uuid4().hex}")
        await leaderships.found()
        return leaderships.next_store


class TestOnEtcd(_OnKeyValues):
    @pytest.fixture
    async def kv(self, etcd: EtcdServer) -> AsyncIterator[KeyValueStore]:
        store = EtcdKeyValueStore(EtcdSettings((etcd.url,), timeout_s=10.0), Runtime())
        yield store
        await store.aclose()


class TestOnKeysInMemory(_OnKeyValues):
    @pytest.fixture
    async def kv(self) -> AsyncIterator[KeyValueStore]:
        store = EmbeddedKeyValueStore(Runtime())
        yield store
        await store.aclose()


class LateKeyValueStore(EmbeddedKeyValueStore):
    """While `late`, a transaction gets no answer and is applied at `land`. Counts the `transactions`."""

    late = False
    lost = False

    def __init__(self) -> None:
        super().__init__(Runtime())
        self.waiting: list[tuple[Sequence[Compare], Sequence[Operation], Sequence[Operation]]] = []
        self.transactions = 0

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        self.transactions += 1
        if self.late:
            self.waiting.append((compares, then, otherwise))
            raise Unavailable("no answer")
        result = await super().transact(compares, then, otherwise)
        if self.lost:
            raise Unavailable("the answer was lost")
        return result

    async def land(self) -> list[bool]:
        """Apply the late transactions; returns which of them succeeded."""
        self.late = False
        return [(await super(LateKeyValueStore, self).transact(*each)).succeeded for each in self.waiting]


@pytest.fixture
async def kv() -> AsyncIterator[LateKeyValueStore]:
    store = LateKeyValueStore()
    yield store
    await store.aclose()


@pytest.fixture
async def cluster(kv: LateKeyValueStore) -> Leaderships:
    leaderships = Leaderships(kv, "main")
    await leaderships.found()
    return leaderships


OFFSET = offset_key("g", "web", 0)


async def test_a_late_transaction_does_not_bring_an_old_offset_back(
    kv: LateKeyValueStore, cluster: Leaderships
) -> None:
    store = await cluster.next_store()
    await store.write([put(OFFSET, "1")])
    kv.late = True
    with pytest.raises(Unavailable):
        await store.write([put(OFFSET, "2")])
    kv.late = False
    await store.write([put(OFFSET, "2")])
    await store.write([put(OFFSET, "3")])
    assert await kv.land() == [False]
    assert await store.load("g") == {OFFSET: b"3"}


async def test_after_a_lost_answer_the_next_write_succeeds(kv: LateKeyValueStore, cluster: Leaderships) -> None:
    store = await cluster.next_store()
    for value in "123":
        kv.lost = True
        with pytest.raises(Unavailable):
            await store.write([put(OFFSET, value)])
        kv.lost = False
        assert await store.load("g") == ({OFFSET: value.encode()} if value != "1" else {})
        await store.write([put(OFFSET, value)])
        assert await store.load("g") == {OFFSET: value.encode()}


async def test_a_late_transaction_of_an_earlier_leader_changes_nothing(
    kv: LateKeyValueStore, cluster: Leaderships
) -> None:
    first = await cluster.next_store()
    await first.write([put(OFFSET, "1")])
    kv.late = True
    with pytest.raises(Unavailable):
        await first.write([put(OFFSET, "2")])
    kv.late = False
    later = await cluster.next_store()
    assert await later.load("g") == {OFFSET: b"1"}
    assert await kv.land() == [False]
    assert await later.load("g") == {OFFSET: b"1"}


async def test_while_the_leader_key_is_missing_a_write_may_be_repeated(
    kv: LateKeyValueStore, cluster: Leaderships
) -> None:
    store = await cluster.next_store()
    await store.write([put(OFFSET, "1")])
    await kv.delete(cluster.keys.leader(SHARD))
    with pytest.raises(Unavailable, match="no leader of shard 3"):
        await store.write([put(OFFSET, "2")])
    await cluster.lead()
    await store.write([put(OFFSET, "2")])
    assert await store.load("g") == {OFFSET: b"2"}


async def test_a_wiped_store_takes_no_write_shows_no_group_and_says_recover(
    kv: LateKeyValueStore, cluster: Leaderships
) -> None:
    store = await cluster.next_store()
    await store.write([put(OFFSET, "1")])
    identity = await kv.get(cluster.keys.identity)
    assert identity is not None
    await kv.delete(cluster.keys.identity)
    with pytest.raises(Unavailable, match="cluster recover"):
        await store.write([put(OFFSET, "2")])
    with pytest.raises(Unavailable, match="cluster recover"):
        await store.load("g")  # it may be empty: the group's offsets are in the bucket
    await kv.put(cluster.keys.identity, identity.value)
    assert await store.load("g") == {OFFSET: b"1"}


@pytest.mark.parametrize("used", [False, True])
async def test_a_change_of_the_number_of_shards_fences(kv: LateKeyValueStore, cluster: Leaderships, used: bool) -> None:
    store = await cluster.next_store()
    if used:
        await store.write([put(OFFSET, "1")])
    await cluster.found(SHARDS + 1)
    with pytest.raises(Fenced, match="9 shards now"):
        await store.write([put(OFFSET, "2")])


async def test_writes_of_many_groups_share_transactions(kv: LateKeyValueStore, cluster: Leaderships) -> None:
    store = await cluster.next_store()
    await store.write([put(OFFSET, "1")])
    before = kv.transactions
    await store.write([put(offset_key(f"g{number}", "web", 0), "1") for number in range(10 * (OPERATIONS_MAX - 1))])
    assert kv.transactions - before == 10


def bytes_in(changes: Sequence[Change]) -> int:
    return sum(len(change.key) + len(change.value) for change in changes if isinstance(change, PutKey))


def test_the_changes_of_a_group_stay_together_where_they_fit() -> None:
    interleaved = [put(offset_key(f"g{group}", "web", number), "x") for number in range(50) for group in range(10)]
    batches = list(cut(interleaved))
    assert sorted(change.key for batch in batches for change in batch) == sorted(change.key for change in interleaved)
    assert all(len(batch) < OPERATIONS_MAX for batch in batches)
    for group in range(10):
        assert sum(any(group_of(change.key) == f"g{group}" for change in batch) for batch in batches) == 1


def test_large_members_are_cut_by_bytes() -> None:
    members = [put(member_key("g", f"m{number}"), "x" * 300_000) for number in range(10)]
    batches = list(cut(members))
    assert [change for batch in batches for change in batch if change in members] == members
    assert all(bytes_in(batch) <= TRANSACTION_BYTES_MAX for batch in batches)
