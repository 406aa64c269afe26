"""A bucket that lost objects, and a process that repairs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.storage.archive_scenes import (
    PLACES,
    Scene,
    archiver_of,
    log_of,
    manifest_of,
    small_scene,
    state_of,
)
from tests.storage.copy_scenes import expect_history
from tests.storage.known_topics import SaidTopics
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table

from tidelog.storage.bucket.finding import Severity
from tidelog.storage.bucket.repair.bucket_repair import BucketRepair, RepairPlan
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

Lost = Mapping[TopicPartition, Sequence[int]]


@dataclass
class Damaged:
    """A bucket with a log that goes on, and a process that repairs it."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    scene: Scene = field(init=False)

    async def filled(self, *, archived: int = 0) -> Damaged:
        """Entries 1, 2, 4 and 5 hold records. The first pass, if any, archives entries up to 3, the second all."""
        self.scene = await small_scene(self.store)
        await self.scene.append({WEB: 1, WEB_1: 2, SHOP: 1}, epoch=2)
        for number in range(archived):
            await archiver_of(self.scene, self.store, seed=number).run_once(4 if number == 0 else None)
        return self

    def repair(self, store: ObjectStore | None = None) -> BucketRepair:
        runtime = Runtime(self.scene.clock, SeededEntropy(11))
        return BucketRepair(store or self.store, SaidTopics(), runtime, deep=True)

    async def repaired(self) -> RepairPlan:
        """Repair; return the plan."""
        plan = await self.repair().plan()
        assert not plan.unsolved
        await self.repair().apply(plan)
        again = await self.repair().plan()
        assert (again, list(again.unsolved)) == (RepairPlan(), [])
        return plan

    async def collect_log(self) -> None:
        """Delete the archived entries, as a broker does after the grace."""
        floor = (await self.scene.log.latest()).floor.number
        await self.store.delete_many([self.scene.wal.key(seq) for seq in range(floor)])

    async def key_of_segment(self, place: TopicPartition, number: int = 0) -> str:
        return list((await manifest_of(self.store)).topics[place.topic_id].segments)[number].key

    async def key_of_list(self, place: TopicPartition) -> str:
        """The list that the newest version names."""
        stored = (await self.scene.log.latest()).topics[place.topic_id].stored
        assert stored is not None
        return stored.key

    async def check(self, lost: Lost) -> None:
        """Check that exactly the `lost` records are recorded as lost, that all others are there, and that the log goes
        on: records can be appended and archived, and nothing else is lost."""
        for _ in range(2):
            for place in PLACES:
                gone = set(lost.get(place, ()))
                state = await state_of(self.store, place)
                assert {n for loss in state.losses for n in range(loss.first_offset, loss.next_offset)} == gone, place
                kept = [n for n in range(self.scene.next_offsets[place]) if n not in gone]
                assert (await log_of(self.store, place)).equals(record_table(kept)), place
            await expect_history(self.store)
            found = [finding async for finding in BucketVerification(self.store, deep=True).findings()]
            assert [finding for finding in found if finding.severity is Severity.ERROR] == []
            await self.scene.append(dict.fromkeys(PLACES, 2), epoch=2)
            archiver = archiver_of(self.scene, self.store, seed=50 + self.scene.next_seq)
            await archiver.run_once()
            assert not archiver.damage
            assert (await self.scene.log.latest()).floor.number == self.scene.next_seq


HELD: Mapping[int, Lost] = {
    1: {WEB: range(3), SHOP: range(2)},
    2: {WEB: [3], WEB_1: range(4)},
    4: {WEB: [4, 5], SHOP: [2]},
}
