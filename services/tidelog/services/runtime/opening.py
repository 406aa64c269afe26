"""From settings to the upkeep of segments and to sweeps, the same for a broker and for `tidelog compactor`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from tempfile import gettempdir

from tidelog.services.runtime.settings import Settings
from tidelog.services.workers.sweeping.slow_sweep import SlowSweep, sweep_settings
from tidelog.services.workers.sweeping.sweep_loop import SweepLoop, Turn
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.upkeep.rules import UpkeepLimits
from tidelog.storage.upkeep.upkeep import Upkeep
from tidelog.storage.upkeep.upkeep_tasks import upkeep_store, upkeep_tasks


def upkeep_limits(settings: Settings) -> UpkeepLimits:
    """What one worker may take."""
    return UpkeepLimits(
        memory_bytes=settings.archiver_memory_bytes,
        bandwidth_bytes=settings.archiver_bandwidth_bytes or None,
        grace_s=settings.delete_grace_ms / 1000,
    )


def build_upkeep(settings: Settings, store: ObjectStore, runtime: Runtime, executor: Executor | None = None) -> Upkeep:
    """All tasks over `store`. `executor` does what takes the processor; None: the event loop's own. Raises `Invalid` if
    the settings name a folder that cannot be written to."""
    limits = upkeep_limits(settings)
    tasks = upkeep_tasks(upkeep_store(store, runtime, limits), runtime, limits, executor, _spill_folder(settings))
    return Upkeep(tasks, runtime)


def build_sweeps(
    settings: Settings, store: ObjectStore, runtime: Runtime, turn_now: Callable[[], Turn | None]
) -> SweepLoop:
    """Sweeps of `store` by whoever's turn it is, within the bandwidth that upkeep has."""
    rationed = upkeep_store(store, runtime, upkeep_limits(settings))
    sweep = SlowSweep(rationed, runtime, sweep_settings(settings.delete_grace_ms))
    return SweepLoop(sweep, turn_now, runtime, settings.archiver_sweep_interval_ms / 1000)


def _spill_folder(settings: Settings) -> Path:
    folder = Path(settings.archiver_spill_folder or gettempdir())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise Invalid(
            f"archiver.spill.folder is {folder}, which is no folder that can be written to: create it, or name another",
            field="archiver.spill.folder",
        )
    return folder
