"""The front doors of a broker process."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.doors.front_door import FrontDoor
from tidelog.services.http.http_door import HttpDoor
from tidelog.storage.runtime import Runtime


def front_doors(runtime: Runtime) -> Sequence[FrontDoor]:
    """All doors, closed. A line here adds one."""
    return (HttpDoor(runtime),)
