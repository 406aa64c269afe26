"""The front doors of a broker process."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.doors.front_door import FrontDoor
from tidelog.services.doors.kafka_counts import KafkaCounts
from tidelog.services.http.http_door import HttpDoor
from tidelog.services.settings.listeners import NO_LISTENERS
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime


def front_doors(runtime: Runtime, settings: Settings) -> Sequence[FrontDoor]:
    """The doors that `settings` open, still closed. A line here adds one."""
    if settings.listeners == NO_LISTENERS:
        return (HttpDoor(runtime),)
    counts = KafkaCounts()
    return HttpDoor(runtime, counts), _kafka_door(runtime, counts)


def _kafka_door(runtime: Runtime, counts: KafkaCounts) -> FrontDoor:
    """Imported here, so that a broker without such clients does not hold their protocol in memory."""
    from tidelog.services.kafka.kafka_door import KafkaDoor

    return KafkaDoor(runtime, counts)
