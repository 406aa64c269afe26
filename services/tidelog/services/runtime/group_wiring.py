"""Builds what the coordinators of groups need from the settings."""

from __future__ import annotations

from tidelog.coordinator.groups.group_coordinator import CoordinatorBounds
from tidelog.coordinator.groups.group_step import GroupLimits
from tidelog.coordinator.groups.group_writes import WriteBounds
from tidelog.services.broker.groups.local_groups import GroupParts
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime


def group_parts(settings: Settings, runtime: Runtime) -> GroupParts:
    """The machine and the bounds of all groups."""
    raise NotImplementedError


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
