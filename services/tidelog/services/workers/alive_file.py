"""Shows that a compactor is alive: renews the modification time of a file while the event loop runs.

A compactor listens on no port, so its health check reads the age of this file
(`tidelog.services.runtime.container_health`). Work on records runs in threads. So a long merge does not stop the
renewal, but an event loop that hangs does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tidelog.services.runtime.container_health import ALIVE_S_MAX
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Clock

RENEWAL_S = ALIVE_S_MAX / 6


@contextlib.asynccontextmanager
async def kept_alive(file: Path | None, clock: Clock) -> AsyncIterator[None]:
    """Renew `file` in the background, and remove it at the end. None: do nothing. Raises `Invalid` if the file cannot
    be written."""
    if file is None:
        yield
        return
    _touch(file)
    renewing = asyncio.create_task(_renew(file, clock))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait((renewing,))
        _remove(file)


async def _renew(file: Path, clock: Clock) -> None:
    while True:
        await clock.sleep(RENEWAL_S)
        _touch(file)


def _touch(file: Path) -> None:
    try:
        file.touch()
    except OSError as error:
        raise Invalid(f"the alive file {file} cannot be written: {error.strerror}", field="alive-file") from error


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
