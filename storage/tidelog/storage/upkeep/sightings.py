"""When a worker first saw the versions of a log, by its own monotonic clock. The grace counts from then.

No durable record says when a version was appended by a clock that is safe enough for a deletion (`archiver`). A worker
that sees a version knows that this version and all earlier ones existed, so a few sightings stand for many versions.
"""

from __future__ import annotations

from tidelog.storage.runtime import Clock

SIGHTINGS_PER_GRACE = 64
"""Versions seen within a 64th of the grace share the later sighting, which bounds the memory."""


class Sightings:
    """The sightings of one log. A version is ripe `grace_s` after it was first seen."""

    def __init__(self, clock: Clock, grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._seen: list[tuple[int, float]] = []

    def see(self, version: int) -> None:
        """Note that `version` is the newest at this moment."""
        if self._seen and version <= self._seen[-1][0]:
            return
        now_s = self._clock.monotonic()
        if len(self._seen) > 1 and now_s - self._seen[-2][1] < self._grace_s / SIGHTINGS_PER_GRACE:
            self._seen.pop()
        self._seen.append((version, now_s))

    def ripe(self) -> int:
        """The greatest version that was seen at least a grace ago; -1 if there is none."""
        now_s = self._clock.monotonic()
        ripe = [place for place, (_, seen_s) in enumerate(self._seen) if now_s - seen_s >= self._grace_s]
        if not ripe:
            return -1
        del self._seen[: ripe[-1]]
        return self._seen[0][0]

    def ripens_in_s(self, version: int) -> float | None:
        """The seconds until `version` is ripe, 0 if it is; None if neither it nor a later one was seen."""
        now_s = self._clock.monotonic()
        seen = (seen_s for seen_version, seen_s in self._seen if seen_version >= version)
        first_s = next(seen, None)
        return None if first_s is None else max(0.0, first_s + self._grace_s - now_s)
