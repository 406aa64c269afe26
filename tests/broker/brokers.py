"""Starts brokers for tests and stops them at the end of a context."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.runtime.wiring import broker_parts
from tidelog.services.settings.settings import Settings
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Clock, Runtime, SystemClock
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec

NEVER_MS = 10**12
SETTINGS = Settings(
    store="memory:", shards=2, shutdown_timeout_ms=3_000, archiver_interval_ms=NEVER_MS, archiver_min_bytes=1 << 60
)
"""Archives only on demand."""


@asynccontextmanager
async def running_broker(
    store: ObjectStore, *, clock: Clock | None = None, **changes: object
) -> AsyncIterator[LocalBroker]:
    """Start a broker on `store` with `changes` to `SETTINGS`. Without `clock` it uses the machine's."""
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    broker = LocalBroker(broker_parts(settings, Runtime(clock or SystemClock()), store))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.aclose()


def wal_of(store: ObjectStore, shard: int = 0) -> Wal:
    """The write-ahead log of a shard, whose floor its manifest has."""
    return Wal(store, shard, ParquetWalCodec(), ShardLog(store, shard, Runtime()))


async def until(condition: Callable[[], bool], *, seconds_max: float = 60.0, every_s: float = 0.001) -> None:
    """Wait until `condition` holds; check every `every_s`."""
    async with asyncio.timeout(seconds_max):
        while True:
            if condition():
                return
            await asyncio.sleep(every_s)
