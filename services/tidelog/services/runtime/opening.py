"""Opens the parts that the settings name and that several processes share: the store, etcd, upkeep and sweeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import upkeep_rules
from tidelog.services.broker.archive.slow_sweep import SlowSweep, sweep_settings
from tidelog.services.broker.archive.sweep_loop import SweepLoop, Turn
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store
from tidelog.storage.stores.s3_settings import S3Settings
from tidelog.storage.upkeep.collect import Collector
from tidelog.storage.upkeep.rules import Load, UpkeepLimits, always_idle
from tidelog.storage.upkeep.upkeep import Upkeep, upkeep_store, upkeep_tasks

if TYPE_CHECKING:
    from tidelog.coordinator.etcd.store import EtcdKeyValueStore


def open_named_store(settings: Settings, runtime: Runtime) -> ObjectStore:
    """The store that `settings.store` names, without wrappers. Raises `Invalid` for an unknown kind of store."""
    limits = S3Settings(
        connect_s_max=settings.store_connect_timeout_ms / 1000, request_s=settings.store_request_timeout_ms / 1000
    )
    return open_store(settings.store, runtime=runtime, s3=limits)


def open_etcd(settings: Settings, runtime: Runtime) -> EtcdKeyValueStore:
    """The etcd at `settings.etcd_endpoints`, for the running event loop. It connects when it is first used. Raises
    `Invalid`."""
    from tidelog.coordinator.etcd.settings import EtcdSettings
    from tidelog.coordinator.etcd.store import EtcdKeyValueStore

    if settings.etcd_endpoints is None:
        raise Invalid("no etcd is named: give etcd.endpoints, as http://HOST:2379", field="etcd.endpoints")
    endpoints = (endpoint.strip() for endpoint in settings.etcd_endpoints.split(","))
    return EtcdKeyValueStore(
        EtcdSettings(
            tuple(endpoint for endpoint in endpoints if endpoint),
            username=settings.etcd_username,
            password=settings.etcd_password,
            ca_file=settings.etcd_ca_file,
            cert_file=settings.etcd_cert_file,
            key_file=settings.etcd_key_file,
            timeout_s=settings.etcd_timeout_ms / 1_000,
        ),
        runtime,
    )


def upkeep_limits(settings: Settings) -> UpkeepLimits:
    """The limits of one worker."""
    return UpkeepLimits(
        memory_bytes=settings.archiver_memory_bytes,
        bandwidth_bytes=settings.archiver_bandwidth_bytes or None,
        grace_s=settings.delete_grace_ms / 1000,
    )


def build_upkeep(
    settings: Settings,
    store: ObjectStore,
    runtime: Runtime,
    executor: Executor | None = None,
    load: Callable[[], Load] = always_idle,
) -> Upkeep:
    """All upkeep tasks over `store`. Work that needs the processor runs in `executor`, or in the event loop's own;
    `load`: what else the process does. Raises `Invalid` if the folder for spills cannot be written to."""
    limits, spills = upkeep_limits(settings), _spill_folder(settings)
    tasks = upkeep_tasks(upkeep_store(store, runtime, limits), runtime, limits, executor, spills, load=load)
    return Upkeep(tasks, runtime)


def build_collector(settings: Settings, store: ObjectStore, runtime: Runtime, catalog: Catalog) -> Collector:
    """The collection of one shard. Of a deleted topic nothing is kept longer than the grace of the settings."""

    def grace_ms(topic_id: str) -> int:
        topic = catalog.with_id(topic_id)
        return upkeep_rules(topic.config).grace_ms if topic else 0

    limits = upkeep_limits(settings)
    return Collector(upkeep_store(store, runtime, limits), runtime, limits.grace_s, grace_ms)


def build_sweeps(
    settings: Settings, store: ObjectStore, runtime: Runtime, turn_now: Callable[[], Turn | None]
) -> SweepLoop:
    """Sweeps of `store` while `turn_now` gives a turn, with the bandwidth of upkeep."""
    rationed = upkeep_store(store, runtime, upkeep_limits(settings))
    sweep = SlowSweep(rationed, runtime, sweep_settings(settings.delete_grace_ms))
    return SweepLoop(sweep, turn_now, runtime, settings.archiver_sweep_interval_ms / 1000)


def _spill_folder(settings: Settings) -> Path:
    folder = Path(settings.archiver_spill_folder or gettempdir())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise Invalid(
            f"archiver.spill.folder: cannot write to {folder}. Create this folder, or name another one",
            field="archiver.spill.folder",
        )
    return folder
