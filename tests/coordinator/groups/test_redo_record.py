"""A write of one group is atomic, however large: a leader dies after each of its transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS, Leaderships
from tests.coordinator.groups.group_store_conformance import offsets, put

from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_transactions import OPERATIONS_MAX, TRANSACTION_BYTES_MAX
from tidelog.coordinator.groups.redo_record import size_of
from tidelog.coordinator.groups.stored import REDO, head_key, member_key, offset_key
from tidelog.coordinator.kv.key_value import Compare, DeleteKey, Operation, PutKey, RangePage, TransactionResult
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime

GROUP = next(name for name in map("g{}".format, range(200)) if shard_of_group(name, SHARDS) == SHARD)
OTHER = next(name for name in map("h{}".format, range(200)) if shard_of_group(name, SHARDS) == SHARD)


class DyingKeyValueStore(EmbeddedKeyValueStore):
    """After `left` more transactions that write, each one fails: before it is applied or, if `lost`, after. `late`: the
    first one that failed, to be applied by `land`."""

    def __init__(self) -> None:
        super().__init__(Runtime())
        self.left: int | None = None
        self.lost = False
        self.writes = 0
        self.late: tuple[Sequence[Compare], Sequence[Operation], Sequence[Operation]] | None = None

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        writes = any(isinstance(each, PutKey | DeleteKey) for each in then)
        self.writes += writes
        if writes and self.left is not None:
            assert len(then) <= OPERATIONS_MAX
            if self.left == 0:
                if self.lost:
                    await super().transact(compares, then, otherwise)
                self.late = self.late or (compares, then, otherwise)
                raise Unavailable("no answer")
            self.left -= 1
        return await super().transact(compares, then, otherwise)

    async def land(self) -> bool:
        assert self.late is not None
        self.left = None
        return (await self.transact(*self.late)).succeeded


@pytest.fixture
async def kv() -> AsyncIterator[DyingKeyValueStore]:
    store = DyingKeyValueStore()
    yield store
    await store.aclose()


@pytest.fixture
async def cluster(kv: DyingKeyValueStore) -> Leaderships:
    leaderships = Leaderships(kv, "main")
    await leaderships.found()
    return leaderships


COMMITS = {
    "many offsets": [put(head_key(GROUP), "new"), *offsets(GROUP, 300, "new")],
    "large members": [put(member_key(GROUP, f"m{number}"), f"new{number}" * 50_000) for number in range(12)],
    "deletions": [DeleteKey(offset_key(GROUP, "web", number)) for number in range(300)],
}
BEFORE = [put(head_key(GROUP), "old"), *offsets(GROUP, 300, "old")]


def state_after(*writes: Sequence[Change]) -> Mapping[str, bytes]:
    state: dict[str, bytes] = {}
    for change in (change for changes in writes for change in changes):
        state.pop(change.key, None)
        if isinstance(change, PutKey):
            state[change.key] = change.value
    return state


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
async def test_after_a_crash_a_write_is_there_as_a_whole_or_not_at_all(
    kv: DyingKeyValueStore, cluster: Leaderships, commit: Sequence[Change], lost: bool
) -> None:
    store = await cluster.next_store()
    await store.write(BEFORE)
    seen, applied = set(), 0
    while applied < 50:
        dying = await cluster.next_store()
        kv.left, kv.lost = applied, lost
        try:
            await dying.write(commit)
        except Unavailable:
            applied += 1
        else:
            break
        kv.left = None
        whole = [state_after(BEFORE), state_after(BEFORE, commit)]
        seen.add(whole.index(await dying.load(GROUP)))
        later = await cluster.next_store()
        found = await later.load(GROUP)
        assert found in whole
        assert await later.copied_keys(lambda group: group == GROUP) == {
            key: value for key, value in found.items() if "/members/" not in key
        }
        await later.write([put(offset_key(OTHER, "web", 0), "1")])  # completes what the dead leader began
        assert await later.load(GROUP) == found
        assert not (await kv.range(cluster.keys.groups + REDO + GROUP, limit=1)).items or found == whole[0]
        await later.write([DeleteKey(member_key(GROUP, f"m{number}")) for number in range(12)])
        await later.write(BEFORE)
    assert seen == {0, 1} or (lost and seen == {1})
    assert applied > 3


async def test_a_failed_write_is_finished_by_its_repetition(kv: DyingKeyValueStore, cluster: Leaderships) -> None:
    commit = COMMITS["many offsets"]
    for applied in range(6):
        store = await cluster.next_store()
        await store.write(BEFORE)
        kv.left, kv.lost = applied, applied % 2 == 0
        try:
            await store.write(commit)
        except Unavailable:
            kv.left = None
            await store.write(commit)
        kv.left = None
        assert await store.load(GROUP) == state_after(BEFORE, commit)
        assert not (await kv.range(cluster.keys.groups + REDO)).items


async def leave_unanswered(kv: DyingKeyValueStore, first: EtcdGroupStore) -> None:
    """Write through `first`; its last write reaches etcd when `kv.land` says so."""
    await first.write(BEFORE)
    kv.left = 0
    with pytest.raises(Unavailable):
        await first.write(COMMITS["many offsets"])
    kv.left = None


async def test_a_record_that_comes_late_does_not_hide_later_commits(
    kv: DyingKeyValueStore, cluster: Leaderships
) -> None:
    await leave_unanswered(kv, await cluster.next_store())
    second = EtcdGroupStore(kv, cluster.keys, SHARD, cluster.record, SHARDS)  # of the same leadership
    assert await second.load(GROUP) == state_after(BEFORE)
    assert await kv.land()
    await second.write(offsets(GROUP, 1, "newest"))
    assert await second.load(GROUP) == state_after(BEFORE, COMMITS["many offsets"], offsets(GROUP, 1, "newest"))


async def test_a_record_that_comes_after_records_were_read_does_not_hide_later_commits(
    kv: DyingKeyValueStore, cluster: Leaderships, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_unanswered(kv, await cluster.next_store())
    second = EtcdGroupStore(kv, cluster.keys, SHARD, cluster.record, SHARDS)
    read, landed = kv.range, list[bool]()

    async def read_and_land(prefix: str, **options: Any) -> RangePage:
        page = await read(prefix, **options)
        if not landed:
            landed.append(await kv.land())
        return page

    monkeypatch.setattr(kv, "range", read_and_land)
    await second.write(offsets(GROUP, 1, "newest"))
    assert landed == [True]
    assert await second.load(GROUP) == state_after(BEFORE, COMMITS["many offsets"], offsets(GROUP, 1, "newest"))


async def test_a_small_write_costs_one_transaction_and_a_large_one_few_more(
    kv: DyingKeyValueStore, cluster: Leaderships
) -> None:
    store = await cluster.next_store()
    await store.write(offsets(GROUP, 1, "1"))
    before = kv.writes
    await store.write(offsets(GROUP, OPERATIONS_MAX - 1, "2"))
    assert kv.writes - before == 1
    await store.write(offsets(GROUP, 1_000, "3"))
    assert kv.writes - before - 1 <= 1_000 // (OPERATIONS_MAX - 1) + 2


async def test_transactions_stay_within_their_bytes(
    kv: DyingKeyValueStore, cluster: Leaderships, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.next_store()
    taken: list[int] = []
    transact = kv.transact

    async def measured(
        compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        taken.append(sum(size_of(each) for each in then if isinstance(each, PutKey)))
        return await transact(compares, then, otherwise)

    monkeypatch.setattr(kv, "transact", measured)
    await store.write(COMMITS["large members"])
    assert max(taken) < TRANSACTION_BYTES_MAX + 1_000
