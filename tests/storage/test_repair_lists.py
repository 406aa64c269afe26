"""A list of a topic that was lost is made again, from the history and the segments."""

from __future__ import annotations

import pytest
from tests.storage.archive_scenes import (
    PLACES,
    archiver_of,
    manifest_of,
)
from tests.storage.damage_by_hand import Harm, cut, delete, flip
from tests.storage.record_tables import SHOP, WEB, WEB_1
from tests.storage.repair_scenes import Damaged
from tests.storage.sweep_scenes import orphan_in

from tidelog.storage.errors import Conflict
from tidelog.storage.manifests import topic_lists
from tidelog.storage.wal.wal_tail import find_tail


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version writes new lists of the topics that it changes."""
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 0)


@pytest.mark.parametrize("harm", [delete, flip, cut])
async def test_a_lost_list_is_made_again_of_history_and_segments(lists: None, harm: Harm) -> None:
    bucket = await Damaged().filled(archived=2)
    before = (await manifest_of(bucket.store)).topics[WEB.topic_id]
    await bucket.collect_log()
    await orphan_in(bucket.store)
    named = await bucket.key_of_list(WEB)
    await harm(bucket.store, named)
    ((shard, restored),) = (await bucket.repair().plan()).lists
    assert (shard, restored.key, restored.lost_segments, restored.losses()) == (0, named, 0, {})
    await bucket.repaired()
    after = (await manifest_of(bucket.store)).topics[WEB.topic_id]
    assert sorted(each.sha256 for each in after.segments) == sorted(each.sha256 for each in before.segments)
    assert after.totals == before.totals
    await bucket.check({})


async def test_with_a_list_and_a_segment_lost_the_rest_is_listed_again(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await bucket.store.delete_many([await bucket.key_of_segment(WEB), await bucket.key_of_list(WEB)])
    await bucket.repaired()
    await bucket.check({WEB: range(4), WEB_1: range(4)})


async def test_a_lost_list_of_a_topic_that_changed_since_is_planned_again(lists: None) -> None:
    bucket = await Damaged().filled(archived=1)
    named = await bucket.key_of_list(WEB)
    listed = (await bucket.store.get(named)).data
    await bucket.store.delete(named)
    plan = await bucket.repair().plan()
    await bucket.store.put(named, listed)
    await archiver_of(bucket.scene, bucket.store, seed=5).run_once()
    with pytest.raises(Conflict, match="changed since"):
        await bucket.repair().apply(plan)
    await bucket.check({})


async def test_a_damaged_newest_version_is_made_again_of_the_lists_of_the_one_before_it(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.collect_log()
    await flip(bucket.store, bucket.scene.log.key(1))
    await bucket.repaired()
    bucket.scene.next_seq = (await find_tail(bucket.scene.wal)).next_seq
    assert bucket.scene.next_seq == 4, "no entry is left, so the log goes on at the floor of that version"
    await bucket.check({})


async def test_where_these_lists_were_collected_a_damaged_newest_version_is_for_a_person(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    newest = await bucket.scene.log.latest()
    await bucket.store.delete_many([each.key for each in newest.garbage])
    key = bucket.scene.log.key(1)
    await flip(bucket.store, key)
    plan = await bucket.repair().plan()
    assert (bool(plan), {finding.key for finding in plan.unsolved}) == (False, {key})


async def test_where_the_history_has_a_gap_a_damaged_list_is_for_a_person_and_holds_the_floor(lists: None) -> None:
    bucket = await Damaged().filled(archived=2)
    await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    await bucket.scene.append(dict.fromkeys(PLACES, 1), epoch=2)
    of_web, of_shop = await bucket.key_of_list(WEB), await bucket.key_of_segment(SHOP)
    spoiled = {of_web: b"?", bucket.scene.log.key(0): b"?"}
    sound = {key: (await bucket.store.get(key)).data for key in spoiled}
    for key, data in spoiled.items():
        await bucket.store.put(key, data)
    await bucket.store.delete_many([of_shop, bucket.scene.wal.key(6)])
    plan = await bucket.repair().plan()
    assert [finding.key for finding in plan.unsolved] == [bucket.scene.log.key(0)]
    (repair,) = plan.shards
    assert ([topic.topic for topic in repair.topics], dict(repair.entries)) == (["shop"], {})
    await bucket.repair().apply(plan)
    assert (await bucket.scene.log.latest()).floor.number == 6
    for key, data in sound.items():
        await bucket.store.put(key, data)
    await bucket.repaired()
    await bucket.check({WEB: [7], WEB_1: [6], SHOP: [0, 1, 4]})
