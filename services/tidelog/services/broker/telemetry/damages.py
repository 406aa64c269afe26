"""The damaged objects that this broker knows: logged when found and every `REPEAT_S`, listed in statuses, counted.

The archiver and upkeep report what they find damaged, and report again when it is repaired. Nothing is stored: a broker
that starts finds the damage again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.services.broker.api.cluster import Damage
from tidelog.storage.errors import Corrupt, NewerFormat
from tidelog.storage.runtime import Clock

REPEAT_S = 600.0
"""The time between two log lines about the same damaged object."""

WHAT_TO_DO = "put the object back from a backup, else see `tidelog bucket repair` (docs/repair.md)"
WHAT_TO_INSTALL = "nothing is damaged: install the version of Tidelog that wrote the object"

_log = logging.getLogger(__name__)


def damage_of(fault: Corrupt | NewerFormat, effect: str, shard: int, topic: str = "", partition: int = -1) -> Damage:
    """The report that `fault` has this `effect`."""
    return Damage(fault.name, fault.reason, effect, shard, topic, partition, isinstance(fault, NewerFormat))


class Damages:
    """Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[Damage, ...]] = {}
        self._logged_at_s: dict[str, float] = {}

    def current(self) -> Sequence[Damage]:
        """One per damaged object, ordered by key."""
        by_key = {damage.key: damage for damages in self._found.values() for damage in damages}
        return [by_key[key] for key in sorted(by_key)]

    def replace(self, finder: str, damages: Sequence[Damage]) -> None:
        """`damages` is everything that `finder` knows to be damaged now; it replaces its earlier report."""
        before = self._found.pop(finder, ())
        if damages:
            self._found[finder] = tuple(damages)
        for damage in damages:
            self._log_seldom(damage)
        if before:
            self._log_repaired(before)

    def forget(self, finder: str) -> None:
        """`finder` has ended."""
        self._found.pop(finder, None)

    def _log_seldom(self, damage: Damage) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._logged_at_s.get(damage.key, now_s - REPEAT_S) < REPEAT_S:
            return
        self._logged_at_s[damage.key] = now_s
        fields = {"object": damage.key, "shard": damage.shard, "topic": damage.topic, "partition": damage.partition}
        where = f"partition {damage.partition} of {damage.topic}" if damage.topic else f"shard {damage.shard}"
        _log.error(
            "%s object of %s: %s %s. %s; %s",
            *("unreadable" if damage.newer else "damaged", where, damage.key, damage.reason, damage.effect),
            WHAT_TO_INSTALL if damage.newer else WHAT_TO_DO,
            extra={"fields": fields},
        )

    def _log_repaired(self, before: Sequence[Damage]) -> None:
        still = {damage.key for damage in self.current()}
        for key in sorted({damage.key for damage in before} - still):
            self._logged_at_s.pop(key, None)
            _log.info("no longer damaged: %s", key)
