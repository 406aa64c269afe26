"""How long a writer may trust what it knows of the floor, instead of reading it after each commit.

Hazard: entry n may have been archived and deleted; then its number is free again. A stalled writer that creates n a
second time writes below the floor, where no reader looks. So a writer whose PUT of n succeeded must know that n was
never used before (inv. 1, 2). Time proves it:

1. At t0 the floor had not passed n. Either a read of the floor, sent at t0, said so. Or the writer's create of n - 1,
   the first create of that number, was first sent at t0; a number exists only after the number before it.
2. A truncator deletes n no sooner than a grace after it saw the floor beyond n (inv. 6), hence after t0 + grace.
3. So until t0 + grace, n is either unused or still there. A create that succeeded by then was the first.

The floor is in the newest version of the shard's manifest, and never falls from one version to the next. So a read of
it is a proof that some version v was the newest at a moment of the read (`manifests.shard_log`):

- A LIST proves it for the last version that it shows, because the newest version is never deleted. If the GET after it
  takes longer than the trust, v may have been collected and created again in between, so the reader looks again.
- A HEAD that does not find v + 1 proves it if v was known to be the newest less than the trust before the answer. A
  collector deletes v + 1 no sooner than a grace after it saw a later version; so v + 1 was not deleted yet, and never
  existed. This is the argument of steps 1 to 3 for versions instead of entries.

The writer has the answer before t0 + trust by its own monotonic clock, and the truncator counts the grace by its own.
The trust is half the grace, so one clock may run twice as fast as the other. Both clocks must count the time during
which their machine is suspended (`runtime.SystemClock`). docs/adr/0006-floor-trust.md names the cases that do not.
"""

from __future__ import annotations

FLOOR_TRUST_S = 30.0
"""The longest trust. A short grace makes it shorter."""

GRACE_S_MIN = 2 * FLOOR_TRUST_S
"""The shortest grace a broker accepts. Every writer of a log relies on this bound for every truncator."""


def floor_trust_s(grace_s: float) -> float:
    """The trust for writers of a log whose truncators all wait at least `grace_s`."""
    return min(FLOOR_TRUST_S, grace_s / 2)
