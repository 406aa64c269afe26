"""The formats of stored objects: which versions this program reads, and the feature level that it writes (ADR 0031).

Every object names its format's version. A reader accepts a range of versions, ignores fields that it does not know, and
refuses a later version with `NewerFormat`, which is no damage. A writer uses the versions of the cluster's **feature
level**, so that every live broker can read what any of them writes. The level stands in the cluster's identity, in the
journal. An operator raises it by ``tidelog cluster upgrade`` once all brokers know the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.errors import Corrupt, NewerFormat

FEATURE_LEVEL = 1
"""The highest feature level that this program knows. A change of any format below adds a level: from then on a writer
chooses the version by the cluster's level."""


@dataclass(frozen=True, slots=True)
class Format:
    """This program reads the versions `oldest` to `newest` of the format `name`, and writes `newest`."""

    name: str
    newest: int
    oldest: int

    def check(self, key: str, version: int) -> None:
        """Raises `NewerFormat` if a later program wrote the object `key`, and `Corrupt` if no released one did."""
        if version > self.newest:
            raise NewerFormat(
                f"{key}: is of version {version} of the format {self.name!r}, and this Tidelog reads up to "
                f"{self.newest}: a later version of Tidelog wrote it. Install that version here",
                name=key,
            )
        if version < self.oldest:
            raise Corrupt(key, f"is of version {version} of the format {self.name!r}, and {self.oldest} is the first")


JOURNAL = Format("journal", 1, 1)
GROUP_JOURNAL = Format("journal of groups", 1, 1)
MANIFEST = Format("manifest", 3, 3)
HISTORY = Format("history of a manifest", 1, 1)
SEGMENT_LIST = Format("list of segments", 1, 1)
SEGMENT = Format("segment", 3, 3)
WAL = Format("wal", 2, 2)
WAL_INDEX = Format("wal-index", 1, 1)
COPY_MARK = Format("mark of a copy", 1, 1)
