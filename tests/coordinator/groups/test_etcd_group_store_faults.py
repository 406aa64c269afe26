"""`EtcdGroupStore` on a real cluster whose members die, and in virtual time on a network that loses and delays."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.components.etcd_server import EtcdCluster
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS, Leaderships
from tests.coordinator.groups.group_store_conformance import offsets, put
from tests.coordinator.virtual_time import LoopClock, run_virtually

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.group_transactions import OPERATIONS_MAX
from tidelog.coordinator.groups.stored import offset_key
from tidelog.coordinator.kv.key_value import Compare, GetKey, Operation, TransactionResult
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy

GROUP = next(name for name in map("g{}".format, range(200)) if shard_of_group(name, SHARDS) == SHARD)
KEY = offset_key(GROUP, "web", 0)
LARGE = 2 * OPERATIONS_MAX
PROGRESS_S_MAX = 40.0


class Commits:
    """Commits 1, 2, 3, … to `partitions` of one group, each until it is acknowledged."""

    def __init__(self, store: GroupStore, partitions: int = 20) -> None:
        self.store = store
        self.partitions = partitions
        self.acknowledged = 0
        self.repeated = 0
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        while True:
            changes = offsets(GROUP, self.partitions, str(self.acknowledged + 1))
            try:
                await self.store.write(changes)
                self.acknowledged += 1
            except Unavailable:
                self.repeated += 1
            async with self._progress:
                self._progress.notify_all()
            await asyncio.sleep(0.005)

    async def more(self, count: int) -> None:
        enough = self.acknowledged + count
        await self.until(lambda: self.acknowledged >= enough)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PROGRESS_S_MAX), self._progress:
            await self._progress.wait_for(reached)

    async def check(self, reader: GroupStore) -> None:
        """All partitions are at one commit, which is the last acknowledged one or the one after it."""
        before = self.acknowledged
        found = {int(value) for value in (await reader.load(GROUP)).values()}
        assert len(found) == 1, "a commit was applied in part"
        assert before <= found.pop() <= self.acknowledged + 1


@pytest.fixture
async def kv(etcd_cluster: EtcdCluster) -> AsyncIterator[EtcdKeyValueStore]:
    store = EtcdKeyValueStore(EtcdSettings(etcd_cluster.urls, timeout_s=3.0), Runtime())
    yield store
    await store.aclose()


async def test_commits_survive_kill_9_of_every_member_and_an_outage_of_all(
    etcd_cluster: EtcdCluster, kv: EtcdKeyValueStore
) -> None:
    leaderships = Leaderships(kv, f"test-{uuid.uuid4().hex}")
    await leaderships.found()
    commits = Commits(await leaderships.next_store(), LARGE)
    running = asyncio.create_task(commits.run())
    await commits.more(10)
    for member in etcd_cluster.members:  # the leader is among them
        member.kill()
        await commits.more(10)
        await commits.check(commits.store)
        await asyncio.to_thread(member.start)
    for member in etcd_cluster.members:
        member.kill()
    refused = commits.repeated
    await commits.until(lambda: commits.repeated > refused)
    await asyncio.to_thread(etcd_cluster.start)
    await commits.more(10)
    await commits.check(commits.store)
    later = await leaderships.next_store()
    await later.write([put(offset_key("h", "web", 0), "1")])
    with pytest.raises(Fenced):
        await running
    await commits.check(later)


class DelayingKeyValueStore(EmbeddedKeyValueStore):
    """Loses a share of the answers; half of these transactions are applied later, up to 20 s after their failure."""

    def __init__(self, seed: int) -> None:
        super().__init__(Runtime(LoopClock(), SeededEntropy(seed)))
        self.bad = False
        self.draws = SeededEntropy(seed + 1)
        self.late: set[asyncio.Task[None]] = set()

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        await asyncio.sleep(self.draws.uniform(0.0, 0.02))
        draw = self.draws.uniform(0.0, 1.0)
        reads = all(isinstance(operation, GetKey) for operation in then)
        if not self.bad or draw > 0.3 or reads:
            return await super().transact(compares, then, otherwise)
        if draw < 0.1:
            await super().transact(compares, then, otherwise)
        elif draw < 0.2:
            task = asyncio.create_task(self._later(compares, then, otherwise))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
        raise Unavailable("no answer")

    async def _later(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
    ) -> None:
        await asyncio.sleep(self.draws.uniform(0.0, 20.0))
        await super().transact(compares, then, otherwise)


@pytest.mark.parametrize(
    ("seed", "partitions", "some"), [*((n, 20, 20) for n in range(8)), (1, LARGE, 5), (3, LARGE, 5)]
)
def test_no_late_transaction_brings_an_old_offset_back(seed: int, partitions: int, some: int) -> None:
    async def life() -> None:
        kv = DelayingKeyValueStore(seed)
        leaderships = Leaderships(kv, "main")
        await leaderships.found()
        paused: list[tuple[Commits, asyncio.Task[None]]] = []
        last = 0
        for _ in range(5):
            kv.bad = False
            store = await leaderships.next_store()
            found = (await store.load(GROUP)).get(KEY, b"0")
            assert int(found) >= last, "an acknowledged commit was lost"
            commits = Commits(store, partitions)
            commits.acknowledged = int(found)
            kv.bad = True
            running = asyncio.create_task(commits.run())
            for _ in range(10):
                await commits.more(some)
                await commits.check(store)
            paused.append((commits, running))  # it goes on, although the next one leads
            last = commits.acknowledged
        for commits, running in paused[:-1]:
            with pytest.raises(Fenced):
                await running
            assert commits.acknowledged <= last
        paused[-1][1].cancel()
        await asyncio.sleep(30.0)
        await paused[-1][0].check(paused[-1][0].store)
        assert sum(commits.repeated for commits, _ in paused) > 5 * some
        await kv.aclose()

    run_virtually(life())
