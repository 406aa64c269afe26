"""Sends a request again while the store is `Unavailable`, until a deadline.

- Only `Unavailable` and `Contended` are sent again. Every other error is an answer.
- Waits are "full jitter" (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/): random, from zero
  to a bound that doubles, so that callers that failed together do not return together.
- No try begins after the deadline. The store itself limits how long one try takes (`stores.s3_settings`): to end a call
  from here would need cancellation, which the simulation's event loop does not have.

A retried write can conflict with itself
----------------------------------------
`Unavailable` says nothing about the outcome. If the first `create` took effect and only its answer was lost, the second
one conflicts with the caller's own object; the same holds for a `put` with `if_version`. This wrapper cannot know whose
object it is and raises the `Conflict`. The caller must read the object and compare ids, as the commit protocol of the
write-ahead log and every other user of an object log do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.wrapping import Attempt, Request, WrappingObjectStore

T = TypeVar("T")

_log = logging.getLogger(__name__)

FULL_JITTER = Backoff(first_s=0.05, max_s=2.0, least_share=0.0)


@dataclass(frozen=True)
class RetryPolicy:
    """No try begins later than `deadline_s` after the first one. `backoff` gives the waits between tries."""

    deadline_s: float = 30.0
    backoff: Backoff = FULL_JITTER


class RetryingObjectStore(WrappingObjectStore):
    """Raises the last `Unavailable` when the next try would begin after the deadline."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, policy: RetryPolicy | None = None) -> None:
        super().__init__(inner)
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._policy = policy or RetryPolicy()

    async def _send(self, _: Request, attempt: Attempt[T], /) -> T:
        deadline_s = self._clock.monotonic() + self._policy.deadline_s
        failures = 0
        while True:
            try:
                return await attempt()
            except Unavailable as error:
                failures += 1
                if failures == 1:  # one line a call, so that an outage does not fill the log
                    _log.warning(
                        "the store did not answer, asking again for %.0f s: %s", self._policy.deadline_s, error
                    )
                wait_s = self._policy.backoff.delay_s(failures, self._entropy)
                if self._clock.monotonic() + wait_s > deadline_s:
                    raise
            await self._clock.sleep(wait_s)
