"""How long a writer may trust what it knows of the floor, instead of reading it after each commit.

What has to be known of a PUT of entry n that was won is that n was never used before, for a number whose entry was
archived and deleted can be created again, below the floor, where nobody reads (inv. 1, 2). Time can say so:

1. At t0 the floor had not passed n. Either a read of it, sent at t0, said so; or the writer's create of n - 1, the
   first ever, was first sent at t0, and no number exists before the one ahead of it does.
2. Whoever truncates deletes n no sooner than a grace after it saw the floor beyond n (inv. 6), hence after t0.
3. So up to t0 + grace n is either not used yet or still there; a create that was won by then was the first.

The writer holds the answer in hand before t0 + trust by its own monotonic clock, and the truncator counts the grace by
its own. With a trust of half the grace one clock may run twice as fast as the other. What both must do is to run on
while their machine is suspended (`runtime.SystemClock`); docs/adr/0006-floor-trust.md says what does not.
"""

from __future__ import annotations

FLOOR_TRUST_S = 30.0
"""The trust, unless the grace is so short that half of it is less."""

GRACE_S_MIN = 2 * FLOOR_TRUST_S
"""The least grace that a broker may be given: every writer of a log must know a bound of every truncator's grace."""


def floor_trust_s(grace_s: float) -> float:
    """The trust for writers of a log whose truncators all wait `grace_s` or longer."""
    return min(FLOOR_TRUST_S, grace_s / 2)
