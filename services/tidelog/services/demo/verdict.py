"""Whether the ways agree: generator, HTTP and Spark each say a number, and all that are asked must say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.services.demo.fingerprint import Fingerprint


@dataclass(frozen=True)
class Agreement:
    """One number by three ways; None: this way does not give it."""

    what: str
    generator: int | str
    http: int | str | None = None
    spark: int | str | None = None

    @property
    def agree(self) -> bool:
        return all(said in (None, self.generator) for said in (self.http, self.spark))


def compare_fingerprints(expected: Sequence[Fingerprint], fetched: Sequence[Fingerprint]) -> list[Agreement]:
    """Records of each partition and the fingerprint of their bytes and order."""
    found = []
    for partition, (ours, theirs) in enumerate(zip(expected, fetched, strict=True)):
        found.append(Agreement(f"partition {partition}: records", ours.records, theirs.records))
        found.append(Agreement(f"partition {partition}: fingerprint", ours.hexdigest(), theirs.hexdigest()))
    return found


def compare_rows(title: str, expected: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> Agreement:
    """A query's rows as one number: how many of the expected ones came, in their order."""
    same = sum(tuple(ours) == tuple(theirs) for ours, theirs in zip(expected, found, strict=False))
    surplus = max(0, len(found) - len(expected))
    return Agreement(f"{title}: rows", len(expected), spark=same - surplus)
