"""Reports the outcome of records to the program: by futures, callbacks, and the errors that `flush` raises.

Sending threads call `delivered` and `refused`. Callbacks and the callbacks of futures run in those threads, without the
producer's lock, so that they may call the producer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidelog.client.delivery import Delivered
from tidelog.client.delivery_futures import DeliveryFutures
from tidelog.client.lanes import Parcel
from tidelog.client.refusals import Part, Refusals, Refused


class Outcomes:
    """`futures` and `refusals` are guarded by `lock`, the producer's."""

    def __init__(
        self,
        lock: threading.Condition,
        on_delivery: Callable[[Delivered], None] | None,
        on_refusal: Callable[[Refused], None] | None,
    ) -> None:
        self.futures = DeliveryFutures()
        self.refusals = Refusals(self.futures.refuse)
        self._lock = lock
        self._on_delivery = on_delivery
        self._on_refusal = on_refusal

    def delivered(self, parcel: Parcel, part: Part, answer: Delivered) -> None:
        """The broker has acknowledged `part` of `parcel`."""
        if self.futures:
            with self._lock:
                outcomes = self.futures.take_delivered(parcel, part, answer)
            for future, outcome in outcomes:
                future.set_result(outcome)
        if self._on_delivery is not None:
            self._on_delivery(answer)

    def refused(self, refused: Refused) -> None:
        """The broker has refused a record. Its future gets the refusal, otherwise `on_refusal`, otherwise `flush`."""
        with self._lock:
            if self._on_refusal is None or self.futures.has(refused.number):
                self.refusals.keep(refused)
                return
        self._on_refusal(refused)
