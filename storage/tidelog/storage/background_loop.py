"""Run one step after another in the background: wait until it is due, take it, survive its failures.

class Collection(BackgroundLoop):
    async def step(self) -> float:
        await self._collect()
        return 60.0                        # seconds until the next step
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Runtime

EVERY_5_S = Backoff(first_s=5.0, max_s=5.0, least_share=1.0)
"""The wait after a failed step, unless a loop has its own."""

_log = logging.getLogger(__name__)


class BackgroundLoop(ABC):
    """Calls `step` from `start` to `close`. `name` is the subject of the log lines about failed steps.

    - A step that raises is logged and tried again after `backoff`: a `TidelogError` as a warning, any other exception
      with its traceback.
    - `close` cancels a running step. A step must therefore be safe to stop between any two requests to the store.
    """

    def __init__(self, name: str, runtime: Runtime, backoff: Backoff = EVERY_5_S) -> None:
        self._name = name
        self._runtime = runtime
        self._clock = runtime.clock
        self._backoff = backoff
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def step(self) -> float:
        """Do the work that is due. Returns the seconds until the next step; 0 lets other tasks run in between."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Cancel the loop and wait until it has ended. Without `start` it does nothing."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                pause_s = await self.step()
                failures = 0
            except Exception as error:
                failures += 1
                pause_s = self._backoff.delay_s(failures, self._runtime.entropy)
                defect = None if isinstance(error, TidelogError) else error
                level = logging.ERROR if defect else logging.WARNING
                _log.log(
                    level, "%s failed and is tried again in %.0f s: %s", self._name, pause_s, error, exc_info=defect
                )
            await self._clock.sleep(pause_s)
