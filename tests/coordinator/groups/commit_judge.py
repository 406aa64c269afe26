"""Judges the commits of a simulated group: none from an older epoch after a newer one, no acknowledged one is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
from tests.coordinator.groups.simulated_member import Broken

from tidelog.coordinator.groups.assignors.assignment import Partition
from tidelog.coordinator.groups.group_step import Topics
from tidelog.coordinator.groups.stored import StoredOffset, offset_key
from tidelog.wire.groups import CommitOffsets

Key: TypeAlias = tuple[Partition, str]
"""A partition with the id of its topic."""


class CommitJudge:
    """Raises `Broken`."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._epochs: dict[Key, int] = {}
        self._accepted: dict[Key, list[int]] = {}
        """The accepted offsets, from the last one that was acknowledged on, or before the first acknowledgement."""
        self._acknowledged: set[Key] = set()

    def accepted(self, request: CommitOffsets, topics: Topics) -> None:
        """The machine accepts a commit."""
        for key, offset in _offsets(request, topics):
            if request.member_epoch < self._epochs.get(key, 0):
                raise Broken(f"{key} was committed in {self._epochs[key]}, then in {request.member_epoch}")
            self._epochs[key] = request.member_epoch
            self._accepted.setdefault(key, []).append(offset)

    def acknowledged(self, request: CommitOffsets, topics: Topics) -> None:
        """The client may get the answer to an accepted commit."""
        for key, offset in _offsets(request, topics):
            accepted = self._accepted[key]
            if offset in accepted:
                del accepted[: accepted.index(offset)]
            self._acknowledged.add(key)

    def check(self, store: Mapping[str, bytes], topics: Topics) -> None:
        """A coordinator has died, and `store` is what is left."""
        for key in tuple(self._accepted):
            stored = self._stored(store, key)
            latest = topics.get(key[0].topic)
            if latest is None or latest.topic_id != key[1]:
                del self._accepted[key]
                self._acknowledged.discard(key)
            elif stored is None and key not in self._acknowledged:
                del self._accepted[key]
            elif stored not in self._accepted[key]:
                raise Broken(f"{stored} is stored for {key}; {self._accepted[key][0]} was acknowledged")
            else:
                self._accepted[key] = [stored]

    def _stored(self, store: Mapping[str, bytes], key: Key) -> int | None:
        (topic, number), topic_id = key
        value = store.get(offset_key(self._group, topic, number))
        stored = None if value is None else msgspec.msgpack.decode(value, type=StoredOffset)
        return stored.offset if stored is not None and stored.topic_id == topic_id else None


def _offsets(request: CommitOffsets, topics: Topics) -> Iterator[tuple[Key, int]]:
    for each in request.offsets:
        yield (Partition(each.topic, each.partition), topics[each.topic].topic_id), each.offset
