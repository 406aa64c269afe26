"""`tidelog compactor` sweeps the bucket if the brokers leave upkeep to it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.settings.settings import Settings
from tidelog.services.workers.process import CompactorOptions, run_compactor
from tidelog.storage.layout import TOPICS_PREFIX, shard_segment_key
from tidelog.storage.object_store import list_all
from tidelog.storage.stores.local import LocalObjectStore

YEARS_AGO_S = 1_000_000_000


async def a_folder_with_an_orphan(folder: Path) -> Path:
    """The path of an upload that no manifest names and that is years old by the time of its file system."""
    store = LocalObjectStore(folder)
    async with running_broker(store, shards=1, archiver_upkeep=False) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 3), ProduceOptions(partition=0))
        await broker.archive_now()
        (live,) = [info.key async for info in list_all(store, TOPICS_PREFIX)]
        orphan = shard_segment_key("t", topic.topic_id, 0, "cd" * 16)
        await store.create(orphan, (await store.get(live)).data)
    os.utime(folder / orphan, (YEARS_AGO_S, YEARS_AGO_S))
    return folder / orphan


def segments_in(folder: Path) -> set[Path]:
    return set(folder.glob("topics/**/*.parquet"))


async def test_orphans_are_deleted_and_live_objects_stay_until_a_signal_ends_it(tmp_path: Path) -> None:
    orphan = await a_folder_with_an_orphan(tmp_path)
    (live,) = segments_in(tmp_path) - {orphan}
    settings = Settings(store=f"file:{tmp_path}", archiver_upkeep=False, archiver_sweep_interval_ms=1)
    running = asyncio.create_task(run_compactor(settings, CompactorOptions(), lambda appended: None))
    await until(lambda: not orphan.exists(), seconds_max=60)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (await running).failures == 0
    assert segments_in(tmp_path) == {live}


@pytest.mark.parametrize("options", [CompactorOptions(once=True), CompactorOptions(topics=("t",))])
def test_a_compactor_for_one_round_or_one_topic_does_not_sweep(options: CompactorOptions) -> None:
    assert not options.sweeps
    assert CompactorOptions().sweeps
