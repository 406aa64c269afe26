"""The sweep in the area of a sink: staged records go once nobody needs them; the marks of the newest batch stay."""

from __future__ import annotations

import pytest
from tests.storage.archive_scenes import keys
from tests.storage.sweep_scenes import DAY_S, Bucket, sweep_of

from tidelog.storage.bucket.sweep.bucket_sweep import SweepSettings
from tidelog.storage.layout import COMMITTED, PUBLISHED, STAGING_PREFIX, sink_prefix
from tidelog.wire.staging import staged_path

DELETES = SweepSettings(delete=True)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


async def write(bucket: Bucket, batch: int, *names: str) -> None:
    for name in names:
        await bucket.store.put(sink_prefix("orders") + staged_path(batch, name), b"x")


async def left(bucket: Bucket) -> list[str]:
    prefix = sink_prefix("orders")
    return [key.removeprefix(prefix) for key in await keys(bucket.store, STAGING_PREFIX)]


async def test_of_a_stream_that_stopped_only_the_marks_of_its_last_batch_stay(bucket: Bucket) -> None:
    await write(bucket, 6, COMMITTED, PUBLISHED)
    await write(bucket, 7, "0-late.arrow", COMMITTED, PUBLISHED)
    await write(bucket, 8, "0-aborted.arrow")
    bucket.clock.now_s += 400 * DAY_S
    sweep = sweep_of(bucket.store, DELETES)
    assert len([stray async for stray in sweep.strays()]) == 4
    assert await left(bucket) == [staged_path(7, COMMITTED), staged_path(7, PUBLISHED)]
    assert sweep.report.unjudged == {}


@pytest.mark.parametrize("age_s", [DAY_S, 400 * DAY_S])
async def test_a_batch_that_is_committed_and_not_published_keeps_all_and_is_named(bucket: Bucket, age_s: float) -> None:
    await write(bucket, 6, COMMITTED, PUBLISHED)
    await write(bucket, 7, "0-a.arrow", "1-b.arrow", COMMITTED)
    before = await left(bucket)
    bucket.clock.now_s += age_s
    sweep = sweep_of(bucket.store, DELETES)
    assert [stray async for stray in sweep.strays()] == []
    assert await left(bucket) == before
    assert sweep.report.unjudged == {
        sink_prefix("orders"): "batch 7 is not published: start its Spark stream again to complete it"
    }


async def test_the_area_of_a_live_stream_is_left_as_it_is(bucket: Bucket) -> None:
    await write(bucket, 6, "0-garbage.arrow", COMMITTED, PUBLISHED)
    bucket.clock.now_s += DAY_S
    await write(bucket, 7, "0-a.arrow")
    assert [stray async for stray in sweep_of(bucket.store, DELETES).strays()] == []
    assert len(await left(bucket)) == 4


async def test_of_a_batch_job_that_died_nothing_stays(bucket: Bucket) -> None:
    await write(bucket, 0, "0-a.arrow", "1-b.arrow")
    bucket.clock.now_s += DAY_S
    assert len([stray async for stray in sweep_of(bucket.store, DELETES).strays()]) == 2
    assert await left(bucket) == []
