"""Why a shard is not led, as a value that any number of requests can raise."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.errors import Fenced, Unavailable


@dataclass(frozen=True)
class Failure:
    """`fenced` by another leader, or stopped here; records that waited are in the log or not."""

    reason: str
    fenced: bool

    def error(self) -> Fenced | Unavailable:
        """A new error to raise: each request gets its own."""
        return Fenced(self.reason) if self.fenced else Unavailable(self.reason)
