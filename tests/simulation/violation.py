"""An invariant that does not hold. A run ends at the first one."""

from __future__ import annotations

SHARD = 0


class Violation(Exception):
    """Not a `TidelogError`, so no code expects it."""


class Rules:
    """Remembers the first violation, because the task that it is raised in may be one whose errors nobody reads."""

    def __init__(self) -> None:
        self.violation: Violation | None = None

    def require(self, holds: bool, rule: str, what: object) -> None:
        """Raise `Violation` unless `holds`."""
        if not holds:
            self.violation = self.violation or Violation(f"{rule}: {what}")
            raise self.violation
