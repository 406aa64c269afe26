"""When a shard cuts its next batch, as a pure decision.

- An idle shard flushes at once: the first record after a pause waits for nothing.
- A busy one starts its PUTs at least `interval_s` apart, which bounds what they cost.
- A batch that has reached `batch_bytes_max` is cut at once, even while a PUT is under way, so that it is encoded by
  the time the PUT is answered.
- Where PUTs cost nothing (`interval_s` 0, a local disk), a quarter of that is reason enough: encoding it takes as long
  as the PUT under way, and two processors share the work.
- Else, while a PUT is under way, the batch goes on filling: batches grow with load.
"""

from __future__ import annotations

from dataclasses import dataclass

EARLY_PART = 4
"""One part in so many of a whole batch is cut while a PUT is under way, where PUTs cost nothing."""


@dataclass(frozen=True)
class FlushPolicy:
    """`interval_s` between the starts of two PUTs of a busy shard; a batch is cut at `batch_bytes_max`."""

    interval_s: float
    batch_bytes_max: int

    @property
    def batch_bytes_early(self) -> int:
        """How much is cut although the PUT before is under way."""
        return self.batch_bytes_max if self.interval_s else max(1, self.batch_bytes_max // EARLY_PART)


@dataclass(frozen=True)
class ShardLoad:
    """What the decision rests on. `last_cut_s` is when the batch before was cut, None if there was none;
    `putting` tells that it is not committed yet; `hurry` that the broker is stopping."""

    waiting_bytes: int
    last_cut_s: float | None
    putting: bool
    hurry: bool = False


def seconds_to_cut(policy: FlushPolicy, load: ShardLoad, now_s: float) -> float | None:
    """How long until the next batch is to be cut: 0 for now, None for "not before the load changes"."""
    if not load.waiting_bytes:
        return None
    if load.waiting_bytes >= policy.batch_bytes_early:
        return 0.0
    if load.putting:
        return None
    if load.hurry or load.last_cut_s is None:
        return 0.0
    return max(0.0, load.last_cut_s + policy.interval_s - now_s)
