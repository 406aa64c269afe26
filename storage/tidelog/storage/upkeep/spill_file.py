"""A file without a name for what does not fit in memory: when the process ends, however it ends, so does the file.

There is nothing to clean up after a crash, and nothing that two processes with one folder could take from each other.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

from tidelog.storage.errors import Unavailable


class SpillFile:
    """In `folder`, which is made if it is not there. Raises `Unavailable` where there is no room, or no permission."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: closing it has nothing left to write, and cannot fail for want of room.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  `close` closes it
        except OSError as error:
            raise self._refusal(error) from error

    def write(self, data: memoryview) -> None:
        """Append all of `data`."""
        try:
            while data:
                data = data[os.write(self._file.fileno(), data) :]
        except OSError as error:
            raise self._refusal(error) from error

    def mapped(self, *, alterable: bool = False) -> mmap.mmap:
        """What was written, not copied; stays readable after `close`. At least one byte was written. Changes to an
        `alterable` view are that view's alone, and take the memory of the pages that were changed."""
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY if alterable else mmap.ACCESS_READ)

    def close(self) -> None:
        """The room is free again once no view of it is left. Calling it again does nothing."""
        self._file.close()

    def _refusal(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"what does not fit in memory cannot be kept under {self._folder}: {error}; nothing was changed, and the "
            "work goes on once there is room and permission to write"
        )
