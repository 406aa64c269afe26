"""Decode the subscriptions and assignments that clients of Kafka's protocol type ``consumer`` send to each other.

The coordinator only carries these bytes. It reads them to show them, to know whether a topic is in use, and to see
that a static member came back with other topics. Format: Kafka's ConsumerProtocolSubscription.json and
ConsumerProtocolAssignment.json; the fields read here are the same in all versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from tidelog.wire.groups import TopicPartitions

CONSUMER_PROTOCOL_TYPE = "consumer"

_Item = TypeVar("_Item")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if `metadata` is none."""
    reader = _Reader(metadata)
    try:
        reader.int16()
        return frozenset(reader.array(reader.string))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def assigned_partitions(assignment: bytes) -> tuple[TopicPartitions, ...]:
    """The partitions of an assignment; none if `assignment` is not one."""
    reader = _Reader(assignment)
    try:
        reader.int16()
        return tuple(reader.array(lambda: TopicPartitions(reader.string(), tuple(reader.array(reader.int32)))))
    except (struct.error, UnicodeDecodeError, ValueError):
        return ()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._integer(">h", 2)

    def int32(self) -> int:
        return self._integer(">i", 4)

    def string(self) -> str:
        length = self.int16()
        text = self._data[self._at : self._at + length]
        if length < 0 or len(text) < length:
            raise ValueError("a string is cut")
        self._at += length
        return text.decode()

    def array(self, item: Callable[[], _Item]) -> list[_Item]:
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise ValueError("an array is cut")
        return [item() for _ in range(count)]

    def _integer(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(value)
