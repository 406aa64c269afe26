"""Futures of single records: each ends with where its record went, or with the error that kept it out of the log.

A producer numbers its records. Only the numbers of records with a future are kept, so the others cost nothing.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from tidelog.client.delivery import Delivered
from tidelog.client.lanes import Parcel
from tidelog.client.refusals import Part, Refused


@dataclass(frozen=True)
class DeliveredRecord:
    """Where a record is. `offset` is None with acks=0, and if only a later request showed that the log holds the
    record. `duplicate`: an earlier attempt had appended it, and its answer was lost."""

    topic: str
    partition: int
    offset: int | None
    duplicate: bool = False


class DeliveryFutures:
    """The futures that are open, by the number of their record. The producer holds its lock."""

    def __init__(self) -> None:
        self._open: dict[int, Future[DeliveredRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, number: int) -> Future[DeliveredRecord]:
        """A future for the record of that number."""
        future: Future[DeliveredRecord] = Future()
        future.set_running_or_notify_cancel()  # a record that was sent cannot be taken back
        self._open[number] = future
        return future

    def take_delivered(
        self, parcel: Parcel, part: Part, answer: Delivered
    ) -> list[tuple[Future[DeliveredRecord], DeliveredRecord]]:
        """The futures of the records of `part`, and their outcomes."""
        found = []
        for place, row in enumerate(part.rows.tolist()):
            future = self._open.pop(parcel.number_of(row), None)
            if future is not None:
                offset = None if answer.base_offset is None else answer.base_offset + place
                found.append((future, DeliveredRecord(answer.topic, answer.partition, offset, answer.duplicate)))
        return found

    def refuse(self, refused: Refused) -> bool:
        """End the future of a refused record. False: it has none."""
        future = self._open.pop(refused.number, None)
        if future is None:
            return False
        future.set_exception(refused.error)
        return True

    def has(self, number: int) -> bool:
        """Whether the record of that number has an open future."""
        return number in self._open

    def forget(self, number: int) -> None:
        """The record of that number was not taken after all."""
        self._open.pop(number, None)

    def fail(self, error: Exception) -> None:
        """End all futures: the producer has failed or was closed."""
        failed, self._open = self._open, {}
        for future in failed.values():
            future.set_exception(error)
