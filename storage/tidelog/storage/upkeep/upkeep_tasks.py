"""The tasks that look after a topic's segments, in their order, for every worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.rationing import ThrottledObjectStore
from tidelog.storage.upkeep.compact import CompactTask
from tidelog.storage.upkeep.merge import MergeTask
from tidelog.storage.upkeep.retention import ExpireTask
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, always_idle
from tidelog.storage.upkeep.task import UpkeepTask


def upkeep_store(store: ObjectStore, runtime: Runtime, limits: UpkeepLimits) -> ObjectStore:
    """`store`, limited to `limits.bandwidth_bytes` per second."""
    return ThrottledObjectStore(store, runtime, limits.bandwidth_bytes) if limits.bandwidth_bytes else store


def upkeep_tasks(
    store: ObjectStore,
    runtime: Runtime,
    limits: UpkeepLimits,
    executor: Executor | None,
    spill_folder: Path,
    *,
    load: Callable[[], Load] = always_idle,
) -> Sequence[UpkeepTask]:
    """Expire, compact, merge. `executor` runs the computations (None: the event loop's default); `spill_folder` holds
    the data that does not fit in memory; `load`: by which merges decide what can wait, and how well they compress."""
    return (
        ExpireTask(runtime),
        CompactTask(store, runtime, limits, executor, spill_folder),
        MergeTask(store, runtime, limits, executor, spill_folder, load=load),
    )
