"""The threads that send for a producer, and the batch and the lanes from which they take their requests.

The program's threads fill the batch and queue it. The sending threads take parcels from the lanes, one per partition at
a time, and deliver them. They also queue a batch that has lingered. A request that fails for good fails the producer:
records that wait are dropped, and `check` raises the error from then on.

All of it is guarded by `changed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tidelog.client.batching import Draft, Gathering
from tidelog.client.lanes import Lanes, Parcel, Share
from tidelog.client.outcomes import Outcomes
from tidelog.client.producer_options import ProducerOptions
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Clock


class Sending:
    """`deliver` sends a parcel and returns how many of its records were refused. `threads`: how many run at once."""

    def __init__(
        self,
        changed: threading.Condition,
        gathering: Gathering,
        outcomes: Outcomes,
        deliver: Callable[[Parcel], int],
        options: ProducerOptions,
        clock: Clock,
        threads: int,
    ) -> None:
        self.lanes = Lanes(request_bytes=options.request_bytes, request_records=options.request_records)
        self.closing = False
        self._changed = changed
        self._gathering = gathering
        self._outcomes = outcomes
        self._deliver = deliver
        self._options = options
        self._clock = clock
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"tidelog-producer-{n}", daemon=True) for n in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def has_room(self) -> bool:
        return self.lanes.bytes < self._options.buffer_bytes

    def check(self) -> None:
        """Raise the error of an earlier request that failed, or `Invalid` after `stop`."""
        self.raise_failure()
        if self.closing:
            raise Invalid("the producer is closed")

    def raise_failure(self) -> None:
        """Raise the error of an earlier request that failed."""
        if self._failure is not None:
            raise self._failure

    def await_room(self) -> None:
        """If the buffer is full, wait until half of it is free. Waking at each answer would cost more. Raises the
        errors of `check`."""
        if not self.has_room:
            half = self._options.buffer_bytes // 2
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or self.closing or self.lanes.bytes <= half)
        self.check()

    def await_answers(self, timeout_s: float | None) -> bool:
        """Wait until everything queued is answered or a request has failed. False: neither within `timeout_s`."""
        return self._changed.wait_for(lambda: self._failure is not None or self.lanes.empty, timeout_s)

    def begin_or_seal(self, draft: Draft) -> None:
        """Start the batch or, if it is full, seal it. In both cases it has no room left."""
        if self._gathering.since is None:
            self.check()
            self._gathering.begin(self._clock.monotonic(), self._options.batch_bytes)
            self._changed.notify_all()  # a sending thread must wake when the batch has lingered
        if draft.room_bytes <= 0:
            self.seal()

    def seal(self, *, wait: bool = True) -> None:
        """Queue the batch and begin another."""
        first = self._gathering.first_number
        if first is None:
            return
        try:
            shares = self._gathering.seal()
        except Exception as error:  # of the program's own partitioner
            self.lanes.lose(first)
            self._fail(error, None)
        else:
            self.queue(shares, wait=wait)

    def queue(self, shares: Sequence[Share], *, wait: bool = True) -> None:
        """Put a batch into its lanes. A sending thread does not wait for room, because it makes the room itself."""
        for share in shares:
            if wait:
                self.await_room()
            self.lanes.put(share)
        self._changed.notify_all()

    def stop(self) -> None:
        """Let the threads end after their request under way."""
        self.closing = True
        self._changed.notify_all()

    def join(self, timeout_s: float | None) -> None:
        """Wait for the threads to end, without the lock. None: as long as it takes."""
        give_up_at = None if timeout_s is None else self._clock.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if give_up_at is None else max(0.0, give_up_at - self._clock.monotonic()))

    def _run(self) -> None:
        """Deliver parcel after parcel, until the producer stops."""
        while (parcel := self._await_parcel()) is not None:
            refused = 0
            try:
                refused = self._deliver(parcel)
            except Exception as error:  # also a bug in `on_delivery`: the caller must see it
                self._fail(error, parcel)
            with self._changed:
                self.lanes.done(parcel, refused)
                self._end_futures_if_failed()
                self._changed.notify_all()

    def _await_parcel(self) -> Parcel | None:
        """Wait for the next request to send; None when the producer stops."""
        with self._changed:
            while not self.closing:
                linger_left_s = self._linger_left_s()
                if linger_left_s is not None and linger_left_s <= 0:
                    self.seal(wait=False)
                parcel = self.lanes.take()
                if parcel is not None:
                    return parcel
                self._changed.wait(self._linger_left_s())
            return None

    def _linger_left_s(self) -> float | None:
        """How long the batch may still wait; None if it is empty."""
        if self._gathering.since is None:
            return None
        return self._gathering.since + self._options.linger_ms / 1_000 - self._clock.monotonic()

    def _fail(self, error: Exception, parcel: Parcel | None) -> None:
        with self._changed:
            first = None if parcel is None else parcel.first_number
            for lost in (first, self._gathering.first_number):
                if lost is not None:
                    self.lanes.lose(lost)
            dropped = self._gathering.drop() + self.lanes.drop_waiting()
            if self._failure is None:
                self._failure = error
                error.add_note(
                    f"the producer of {self._gathering.topic!r} stopped; {dropped} records behind it were not sent"
                )
            self._end_futures_if_failed()
            self._changed.notify_all()

    def _end_futures_if_failed(self) -> None:
        """Requests that are under way still complete the futures of their records."""
        if self._failure is not None and self.lanes.empty:
            self._outcomes.futures.fail(self._failure)
