"""An archiver that knows an old version does not take entries below the floor, created again, for damage."""

from __future__ import annotations

import pytest
from tests.storage.archive_scenes import SETTINGS, TOPIC_NAMES, Scene, small_scene, state_of
from tests.storage.record_tables import WEB

from tidelog.storage.archive.archiver import Archiver
from tidelog.storage.errors import Conflict
from tidelog.storage.stores.memory import MemoryObjectStore


def archiver_of(scene: Scene, seed: int) -> Archiver:
    return Archiver(scene.store, scene.wal, scene.log, scene.runtime(seed), TOPIC_NAMES.get, SETTINGS)


async def test_entries_below_the_floor_are_no_damage_of_an_archiver_that_is_late() -> None:
    scene = await small_scene(MemoryObjectStore())
    late = archiver_of(scene, 1)
    await late.collect()  # it knows that the floor is 0
    await archiver_of(scene, 2).run_once()
    for seq in range(scene.next_seq):
        await scene.store.delete(scene.wal.key(seq))
    scene.next_seq = 0
    await scene.append({WEB: 1})  # by a stalled writer, of another time
    with pytest.raises(Conflict, match="below the floor"):
        await late.run_once()
    assert not late.damage
    assert await late.run_once() is None
    assert (await state_of(scene.store, WEB)).cold_end == 6
