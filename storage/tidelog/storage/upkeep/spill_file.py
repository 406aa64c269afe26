"""A file without a name for data that does not fit in memory. It vanishes with the process, however the process ends.

So there is nothing to clean up after a crash, and two processes can share a folder.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

from tidelog.storage.errors import Unavailable


class SpillFile:
    """A file in `folder`, which is created if missing, with as much of Python's file interface as Arrow needs to write.
    Raises `Unavailable` if there is no space or no permission."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: closing it writes nothing, so it cannot fail because the disk is full.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  `close` closes it
        except OSError as error:
            raise self._refusal(error) from error

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """Append all of `data`. After `close` it is dropped: a writer of Parquet that is abandoned writes a footer."""
        left = memoryview(data)
        try:
            while left and not self.closed:
                left = left[os.write(self._file.fileno(), left) :]
        except OSError as error:
            raise self._refusal(error) from error
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Nothing is buffered."""

    def mapped(self) -> mmap.mmap:
        """The written bytes (at least one), not copied; they stay readable after `close`."""
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """The space is free once no view of it is left. Calling it again does nothing."""
        self._file.close()

    def _refusal(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"cannot write spill files under {self._folder}: {error}; nothing was changed, and the work continues once "
            "there is space and permission to write"
        )
