"""Why a shard is not led, as a value that any number of requests can raise."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.errors import Denied, Fenced, Unavailable


@dataclass(frozen=True)
class Failure:
    """`kind`: `Fenced` by another leader, `Denied` by the store, or stopped for another cause. Records that waited are
    in the log or not."""

    reason: str
    kind: type[Fenced | Denied | Unavailable] = Unavailable

    @property
    def fenced(self) -> bool:
        return self.kind is Fenced

    def error(self) -> Fenced | Denied | Unavailable:
        """A new error to raise: each request gets its own."""
        return self.kind(self.reason)
