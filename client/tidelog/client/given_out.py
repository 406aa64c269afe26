"""The records that a consumer has given to its program: whole batches, and a batch that is taken record by record.

The records of a batch count as given out with the `poll` that returns it. While the program iterates over records, only
those that it has taken count. If it breaks off, `put_back` returns the rest to `Reading`, and they come again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tidelog.client.consumed import Record, TopicPartition
from tidelog.client.fetched_parts import Part
from tidelog.client.reading import Reading


class InHand:
    """A part that is given out record by record. `record`: the one that the program has now. `ended`: no more of them
    are given out."""

    __slots__ = ("_first_offset", "ended", "part", "record")

    def __init__(self, part: Part, first_offset: int) -> None:
        self.part = part
        self.record: Record | None = None
        self.ended = False
        self._first_offset = first_offset

    @property
    def offset(self) -> int:
        """Of the record that the program has now."""
        return self._first_offset - 1 if self.record is None else self.record.offset


class GivenOut:
    """`reading` is guarded by `changed`. The program's thread calls everything except `works` and `end_soon`."""

    def __init__(self, reading: Reading, changed: threading.Condition) -> None:
        self._reading = reading
        self._changed = changed
        self._hand: InHand | None = None
        self._ends_soon = False
        self._worked_at: tuple[InHand, int] | None = None

    def take(self, part: Part, first_offset: int) -> InHand:
        """The program takes the records of `part` one by one."""
        hand = self._hand = InHand(part, first_offset)
        hand.ended = self._ends_soon
        return hand

    def put_away(self, hand: InHand) -> None:
        """The program has taken all records of `hand`."""
        if self._hand is hand:
            self._hand = None

    def put_back(self) -> None:
        """The program goes on with something else: the rest of the part in hand comes again."""
        hand, self._hand, self._ends_soon = self._hand, None, False
        if hand is not None:
            hand.ended = True
            self._reading.give_back(hand.part, hand.offset + 1)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset behind the record that the program has now; None if that is not of `partition`."""
        hand = self._hand
        if hand is None or hand.part.partition != partition or not self._reading.is_current(hand.part):
            return None
        return hand.offset + 1

    def offsets(self, *, done: bool = False) -> Mapping[TopicPartition, int]:
        """The offsets behind all that was given out. `done`: without what the program may still be working on."""
        with self._changed:
            found = dict(self._reading.commits(only_done=done))
            hand = self._hand
            if hand is not None and self._reading.is_current(hand.part):
                found[hand.part.partition] = hand.offset + (0 if done else 1)
            return found

    def end_soon(self) -> None:
        """From any thread: the part in hand, or the next one, ends with its present record."""
        self._ends_soon = True
        if (hand := self._hand) is not None:
            hand.ended = True

    def works(self) -> bool:
        """Whether the program has taken further records of a part since the last call."""
        before, hand = self._worked_at, self._hand
        self._worked_at = None if hand is None else (hand, hand.offset)
        return hand is not None and before != self._worked_at
