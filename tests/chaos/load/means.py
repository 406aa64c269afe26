"""What every client of the load has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.chaos.load.calls import Caller
from tests.chaos.load.recorder import Recorder
from tests.chaos.load.workload import Workload

RETRY_PAUSE_S = 0.1
Client = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Means:
    """When `stopping` is set, a client finishes its current operation."""

    workload: Workload
    caller: Caller
    recorder: Recorder
    stopping: asyncio.Event

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the run."""
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return
