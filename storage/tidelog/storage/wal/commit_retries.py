"""When a writer sends its request again, and what it logs while the store refuses its credentials.

- After `Unavailable` the writer waits by its usual backoff, at most 2 s.
- After `Denied` it waits by `DENIED_BACKOFF`, at most 10 s. An operator corrects an expired token or a changed policy,
  and the writer then continues by itself. It logs an error when the refusals begin and every `DENIED_LOG_EVERY_S`, and
  a warning when they end.
- The refusals end with the first request that the store answers. `Unavailable` is not an answer.
"""

from __future__ import annotations

import logging

from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Denied, Unavailable
from tidelog.storage.runtime import Runtime

DENIED_BACKOFF = Backoff(first_s=0.25, max_s=10.0)
DENIED_LOG_EVERY_S = 60.0

_log = logging.getLogger(__name__)


class CommitRetries:
    """The retries of one writer. `what` names its log in messages; `backoff` applies while the store does not answer.
    `last_error` is the last failure, `denied` the last refusal if the store refuses now."""

    def __init__(self, what: str, runtime: Runtime, backoff: Backoff) -> None:
        self._what = what
        self._runtime = runtime
        self._backoff = backoff
        self._failures = 0
        self._denied_since_s = 0.0
        self._logged_at_s = 0.0
        self.at_s = 0.0
        self.last_error: Denied | Unavailable | None = None
        self.denied: Denied | None = None

    @property
    def denied_s(self) -> float:
        """For how many seconds the store has refused; 0 if it does not."""
        return self._runtime.clock.monotonic() - self._denied_since_s if self.denied else 0.0

    def failed(self, error: Denied | Unavailable) -> None:
        """A request failed with `error`. Sets `at_s`, when the next one may be sent."""
        self._failures += 1
        self.last_error = error
        if isinstance(error, Denied):
            self._note_denied(error)
        backoff = DENIED_BACKOFF if isinstance(error, Denied) else self._backoff
        self.at_s = self._runtime.clock.monotonic() + backoff.delay_s(self._failures, self._runtime.entropy)

    def answered(self) -> None:
        """The store answered a request."""
        self._failures = 0
        if self.denied:
            _log.warning("%s: the store accepts commits again, after %.0f s of refusals", self._what, self.denied_s)
            self.denied = None

    async def wait(self) -> None:
        """Return at `at_s`."""
        await self._runtime.clock.sleep(max(0.0, self.at_s - self._runtime.clock.monotonic()))

    def _note_denied(self, error: Denied) -> None:
        now_s = self._runtime.clock.monotonic()
        if self.denied is None:
            self._denied_since_s = now_s
        if self.denied is None or now_s - self._logged_at_s >= DENIED_LOG_EVERY_S:
            self._logged_at_s = now_s
            _log.error(
                "%s: the store has refused the broker's commits for %.0f s. Records wait and are not acknowledged. "
                "The broker tries again, at the latest every %.0f s. Correct the credentials or the policy: %s",
                self._what,
                now_s - self._denied_since_s,
                DENIED_BACKOFF.max_s,
                error,
            )
        self.denied = error
