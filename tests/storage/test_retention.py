"""Retention works like Kafka's: compared with a model that removes segments one by one, and by example."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.storage.archive_scenes import ManualClock
from tests.storage.record_tables import WEB
from tests.storage.segment_lists import MANIFESTS, SIZES_BYTES, TIMES_MS, dense

from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.upkeep.retention import ExpireTask, expired, without_oldest
from tidelog.storage.upkeep.rules import DAY_MS, UNLIMITED, UpkeepRules
from tidelog.storage.upkeep.task import Place

RULES = st.builds(
    UpkeepRules,
    deletes=st.booleans(),
    compacts=st.booleans(),
    retention_ms=st.just(UNLIMITED) | TIMES_MS,
    retention_bytes=st.just(UNLIMITED) | SIZES_BYTES,
)
FOR_EVER_MS = 2**62
PLACE = Place("web", WEB)


def kept_by_model(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> list[Segment]:
    """The rule of Kafka's documentation, one segment at a time."""
    kept = list(manifest.segments)
    while kept:
        oldest, rest_bytes = kept[0], sum(segment.size_bytes for segment in kept[1:])
        old = rules.retention_ms >= 0 and now_ms - oldest.max_timestamp_ms > rules.retention_ms
        over = rules.retention_bytes >= 0 and rest_bytes >= rules.retention_bytes
        if not (rules.deletes and (old or over)) and oldest.last_offset >= manifest.log_start_offset:
            break
        kept.pop(0)
    return kept


@given(MANIFESTS, RULES, st.integers(0, 200))
def test_the_segments_that_stay_are_the_models(manifest: Manifest, rules: UpkeepRules, now_ms: int) -> None:
    after = without_oldest(manifest, expired(manifest, rules, now_ms))
    assert list(after.segments) == kept_by_model(manifest, rules, now_ms)
    assert expired(after, rules, now_ms) == 0
    assert after.cold_end == manifest.cold_end
    assert after.log_start_offset >= manifest.log_start_offset
    begins_at = after.segments[0].base_offset if after.segments else after.cold_end
    assert after.log_start_offset == max(manifest.log_start_offset, begins_at)


@given(MANIFESTS, RULES, st.integers(0, 200))
def test_retention_is_due_exactly_at_its_time_and_not_before(
    manifest: Manifest, rules: UpkeepRules, now_ms: int
) -> None:
    due_at_ms = ExpireTask(Runtime()).due_at_ms(manifest, rules, now_ms)
    if due_at_ms is None:
        assert expired(manifest, rules, FOR_EVER_MS) == 0
    elif due_at_ms <= now_ms:
        assert expired(manifest, rules, now_ms) > 0
    else:
        assert expired(manifest, rules, due_at_ms - 1) == 0
        assert expired(manifest, rules, due_at_ms) > 0


# ---- by example


def test_a_segment_just_as_old_as_allowed_stays() -> None:
    manifest, rules = dense([(1, 1_000, 1)]), UpkeepRules(retention_ms=500)
    assert expired(manifest, rules, 1_500) == 0
    assert expired(manifest, rules, 1_501) == 1


def test_the_default_is_seven_days_and_any_size() -> None:
    manifest = dense([(1, 0, 1 << 50), (1, 1, 1 << 50)])
    assert expired(manifest, UpkeepRules(), 7 * DAY_MS) == 0
    assert expired(manifest, UpkeepRules(), 7 * DAY_MS + 1) == 1


def test_a_timestamp_in_the_future_keeps_its_segment_and_all_later_ones() -> None:
    manifest = dense([(1, 0, 1), (1, 10_000, 1), (1, 0, 1)])
    assert expired(manifest, UpkeepRules(retention_ms=100), 5_000) == 1
    assert expired(manifest, UpkeepRules(retention_ms=100), 10_101) == 3


def test_size_takes_segments_while_the_rest_has_enough() -> None:
    manifest = dense([(1, 0, 10), (1, 0, 10), (1, 0, 10)])
    forever = UpkeepRules(retention_ms=UNLIMITED)
    assert expired(manifest, replace(forever, retention_bytes=UNLIMITED), 0) == 0
    assert expired(manifest, replace(forever, retention_bytes=21), 0) == 0
    assert expired(manifest, replace(forever, retention_bytes=20), 0) == 1
    assert expired(manifest, replace(forever, retention_bytes=0), 0) == 3


def test_a_compacted_topic_loses_nothing_but_what_lies_below_its_log_start() -> None:
    rules = UpkeepRules(deletes=False, compacts=True, retention_ms=0, retention_bytes=0)
    assert expired(dense([(5, 0, 1), (5, 0, 1)]), rules, FOR_EVER_MS) == 0
    assert expired(dense([(5, 0, 1), (5, 0, 1)], log_start_offset=4), rules, FOR_EVER_MS) == 0
    assert expired(dense([(5, 0, 1), (5, 0, 1)], log_start_offset=5), rules, FOR_EVER_MS) == 1


def test_an_empty_partition_is_never_due() -> None:
    assert ExpireTask(Runtime()).due_at_ms(Manifest(WEB), UpkeepRules(retention_bytes=0), FOR_EVER_MS) is None


async def test_the_log_start_moves_in_the_version_in_which_the_segments_leave() -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    log = ManifestLog(store, "web", WEB)
    clock.now_s = 0.0
    await log.append(dense([(5, 0, 1), (5, 2_000, 1)]))
    task, rules = ExpireTask(Runtime(clock)), UpkeepRules(retention_ms=1_000)
    assert await task.run(PLACE, log, rules) is None
    clock.now_s = 2.0
    after = await task.run(PLACE, log, rules)
    assert after is not None
    assert (after.version, after.log_start_offset, after.cold_end, len(after.segments)) == (1, 5, 10, 1)
    assert after.change is not None
    assert after.change.kind is ChangeKind.EXPIRE
    assert len(after.garbage) == 1


async def test_a_clock_that_is_set_back_deletes_nothing() -> None:
    store, clock = MemoryObjectStore(), ManualClock(now_s=10 * DAY_MS / 1000)
    log = ManifestLog(store, "web", WEB)
    await log.append(dense([(5, 9 * DAY_MS, 1)]))
    task, rules = ExpireTask(Runtime(clock)), UpkeepRules(retention_ms=DAY_MS // 2)
    clock.now_s -= DAY_MS / 1000
    assert await task.run(PLACE, log, rules) is None
    clock.now_s += DAY_MS / 1000
    assert await task.run(PLACE, log, rules) is not None
