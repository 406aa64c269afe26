"""Builds what the coordinators of groups need from the settings."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.groups.assignors.assign import assign
from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.coordinator_seams import CoordinatorBounds
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_step import GroupLimits, GroupMachine, Moment
from tidelog.coordinator.groups.group_writes import WriteBounds
from tidelog.services.broker.groups.group_stores import GroupStores, SoleGroupStores
from tidelog.services.broker.groups.local_groups import GroupParts
from tidelog.services.settings.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime


def group_parts(settings: Settings, runtime: Runtime) -> GroupParts:
    """The machine and the bounds of all groups."""
    limits = group_limits(settings)

    def new_machine(name: str, items: Mapping[str, bytes], moment: Moment) -> GroupMachine:
        return Group(name, limits, runtime.entropy, items, moment)

    return GroupParts(new_machine, assign, coordinator_bounds(settings))


def sole_group_stores(settings: Settings, runtime: Runtime, store: ObjectStore, interval_s: float) -> GroupStores:
    """The groups of a broker without etcd: in the bucket. On S3, PUTs start at least `interval_s` apart."""
    grace_s = settings.delete_grace_ms / 1000
    return SoleGroupStores(BucketGroupStore(store, runtime, grace_s=grace_s, interval_s=interval_s))


def group_limits(settings: Settings) -> GroupLimits:
    """The bounds and defaults that the machines of groups know."""
    return GroupLimits(
        session_timeout_ms=settings.group_consumer_session_timeout_ms,
        session_timeout_ms_min=settings.group_min_session_timeout_ms,
        session_timeout_ms_max=settings.group_max_session_timeout_ms,
        heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        members_max=settings.group_max_size,
        instances_max=settings.group_instances_max,
        metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
    )


def coordinator_bounds(settings: Settings) -> CoordinatorBounds:
    return CoordinatorBounds(
        WriteBounds(wait_s=settings.offsets_commit_timeout_ms / 1000),
        groups_max=settings.group_loaded_max,
        requests_max=settings.group_requests_max,
    )
