"""One slow sweep: what it deletes, which requests it makes, and that it may be interrupted anywhere."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.broker.brokers import running_broker
from tests.broker.swept_bucket import SweptBucket, check_records
from tests.storage.archive_scenes import NEVER, CrashingStore, GatedStore, keys
from tests.storage.instant_clock import InstantClock

from tidelog.services.broker.archive.slow_sweep import REQUESTS_PER_S, SlowSweep, sweep_settings
from tidelog.storage.bucket.sweep.bucket_sweep import DAY_MS
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import Unavailable
from tidelog.storage.layout import STAGING_PREFIX
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

SETTINGS = sweep_settings(delete_grace_ms=900_000)


def slow_sweep(store: ObjectStore, clock: InstantClock | None = None) -> SlowSweep:
    return SlowSweep(store, Runtime(clock or InstantClock(), SeededEntropy(3)), SETTINGS)


async def a_bucket() -> SweptBucket:
    bucket = SweptBucket()
    await bucket.fill()
    return bucket


async def test_orphans_a_day_old_are_deleted_and_counted_by_reason() -> None:
    bucket = await a_bucket()
    sweep = slow_sweep(bucket.store)
    await sweep.run()
    assert (sweep.counts.finished, sweep.counts.deleted) == (1, {})
    assert sweep.counts.young_bytes == sum([(await bucket.store.head(key)).size for key in bucket.orphans])
    bucket.pass_a_day()
    await sweep.run()
    assert await bucket.left() == []
    assert (sweep.counts.finished, sweep.counts.deleted) == (2, {"upload": 2, "staging": 1})
    assert (sweep.counts.deleted_bytes["staging"], sweep.counts.young_bytes) == (10, 0)
    async with running_broker(bucket.store, shards=2) as broker:
        await check_records(broker)


async def test_a_longer_grace_of_the_workers_is_the_sweeps_too() -> None:
    assert sweep_settings(900_000).grace_ms == DAY_MS
    assert sweep_settings(3 * DAY_MS).grace_ms == 3 * DAY_MS


async def test_a_tidy_bucket_is_only_read() -> None:
    bucket = await a_bucket()
    for key in bucket.orphans:
        await bucket.store.delete(key)
    bucket.pass_a_day()
    counting = CountingObjectStore(bucket.store)
    await slow_sweep(counting).run()
    usage = counting.usage()
    assert [usage.requests(verb) for verb in (Verb.PUT, Verb.CREATE, Verb.DELETE)] == [0, 0, 0]
    assert usage.requests() > 0


async def test_it_asks_for_no_more_than_a_few_things_a_second() -> None:
    bucket = await a_bucket()
    bucket.pass_a_day()
    counting, clock = CountingObjectStore(bucket.store), InstantClock()
    began_s = clock.now_s
    await slow_sweep(counting, clock).run()
    assert clock.now_s - began_s >= (counting.usage().requests() - 1) / REQUESTS_PER_S > 1


async def test_one_log_line_lists_the_deletions(caplog: pytest.LogCaptureFixture) -> None:
    bucket = await a_bucket()
    bucket.pass_a_day()
    with caplog.at_level(logging.INFO, "tidelog.services.broker.archive"):
        await slow_sweep(bucket.store).run()
    (line,) = [record for record in caplog.records if record.name.startswith("tidelog.services.broker.archive")]
    fields = vars(line)["fields"]
    assert line.getMessage() == "swept the bucket"
    assert (fields["deleted"], fields["upload"], fields["staging"], fields["left_alone"]) == (3, 2, 1, [])


async def requests_of_a_sweep() -> int:
    bucket = await a_bucket()
    bucket.pass_a_day()
    counting = CrashingStore(bucket.store, NEVER, after=False)
    await slow_sweep(counting).run()
    return counting.calls


async def test_cut_off_between_any_two_requests_it_has_lost_nothing_and_the_next_one_ends_it() -> None:
    requests = await requests_of_a_sweep()
    assert requests > 15
    for number in range(requests):
        bucket = await a_bucket()
        bucket.pass_a_day()
        gated = GatedStore(bucket.store, number)
        sweep = slow_sweep(gated)
        running = asyncio.create_task(sweep.run())
        await gated.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        asked = gated.calls
        assert (running.cancelled(), sweep.counts.cut_off, sweep.counts.finished) == (True, 1, 0)
        await check_sound(bucket.store)
        assert gated.calls == asked == number + 1, "nothing is asked after the end"
        bucket.pass_a_day()
        await slow_sweep(bucket.store).run()
        assert await bucket.left() == await keys(bucket.store, STAGING_PREFIX) == []
        await check_sound(bucket.store)


async def check_sound(store: MemoryObjectStore) -> None:
    found = [finding async for finding in BucketVerification(store, deep=True).findings()]
    assert [finding for finding in found if finding.severity.value == "error"] == []


@pytest.mark.parametrize("number", [0, 7, 15])
async def test_where_the_store_does_not_answer_it_ends_and_can_be_run_again(number: int) -> None:
    bucket = await a_bucket()
    bucket.pass_a_day()
    sweep = slow_sweep(CrashingStore(bucket.store, number, after=False, error=Unavailable))
    with pytest.raises(Unavailable):
        await sweep.run()
    assert (sweep.counts.finished, sweep.counts.cut_off) == (0, 1)
    await sweep.run()
    assert sweep.counts.finished == 1
    assert await bucket.left() == []
