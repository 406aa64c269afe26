"""The damaged objects of the bucket that this broker knows of: logged once, then now and then, and counted.

Whoever works through the bucket in the background (archiver, upkeep) tells here what it has found damaged, and tells
again once that is over. Nothing here is stored: a broker that starts finds out anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.runtime import Clock

REPEAT_S = 600.0
"""Between two log lines about the same damaged object."""

WHAT_TO_DO = "put the object back from a backup, else see `tidelog bucket repair` (docs/repair.md)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Damage:
    """The object `key` is missing or does not hold what was written: what that stops says `effect`. `shard` -1, `topic`
    "" and `partition` -1: it is of none."""

    key: str
    reason: str
    effect: str
    shard: int = -1
    topic: str = ""
    partition: int = -1


class Damages:
    """Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[Damage, ...]] = {}
        self._logged_at_s: dict[str, float] = {}

    def current(self) -> Sequence[Damage]:
        """One for each damaged object, by key."""
        by_key = {damage.key: damage for damages in self._found.values() for damage in damages}
        return [by_key[key] for key in sorted(by_key)]

    def found(self, finder: str, damages: Sequence[Damage]) -> None:
        """All that `finder` knows to be damaged now, instead of what it told before."""
        before = self._found.pop(finder, ())
        if damages:
            self._found[finder] = tuple(damages)
        for damage in damages:
            self._log_now_and_then(damage)
        if before:
            self._log_mended(before)

    def forget(self, finder: str) -> None:
        """`finder` looks after nothing here any more."""
        self._found.pop(finder, None)

    def _log_now_and_then(self, damage: Damage) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._logged_at_s.get(damage.key, now_s - REPEAT_S) < REPEAT_S:
            return
        self._logged_at_s[damage.key] = now_s
        fields = {"object": damage.key, "shard": damage.shard, "topic": damage.topic, "partition": damage.partition}
        where = f"partition {damage.partition} of {damage.topic}" if damage.topic else f"shard {damage.shard}"
        _log.error(
            "damaged object of %s: %s %s. %s; %s",
            *(where, damage.key, damage.reason, damage.effect, WHAT_TO_DO),
            extra={"fields": fields},
        )

    def _log_mended(self, before: Sequence[Damage]) -> None:
        still = {damage.key for damage in self.current()}
        for key in sorted({damage.key for damage in before} - still):
            self._logged_at_s.pop(key, None)
            _log.info("not damaged any more: %s", key)
