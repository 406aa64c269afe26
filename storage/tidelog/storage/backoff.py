"""The wait before another try: doubling, bounded, jittered."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.storage.runtime import Entropy


@dataclass(frozen=True)
class Backoff:
    """The bound is `first_s`, doubled at each further failure, `max_s` at most. The wait is random, between
    `least_share` of the bound and the bound, so that callers that failed together do not return together. A share of 0
    is "full jitter", which spreads best."""

    first_s: float = 0.05
    max_s: float = 2.0
    least_share: float = 0.5

    def delay_s(self, failures: int, entropy: Entropy) -> float:
        """The wait after `failures` in a row, 1 or more."""
        bound_s = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return entropy.uniform(bound_s * self.least_share, bound_s)
