"""Up to where a group has read: its committed offsets, by topic and partition.

- An offset belongs to a topic's id. An offset of a topic that was deleted, or created again under the same name, is not
  returned. It is forgotten `FOREIGN_GRACE_MS` later, because this broker may learn of a new topic late.
- While the group has no members, an offset is forgotten `offsets_retention_ms` after the group became empty and the
  offset was committed.
- A member that commits the same offset again causes no write: what is stored stays true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidelog.coordinator.groups.group_step import TopicInfo, Topics
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.stored import StoredHead, StoredOffset, offset_key
from tidelog.storage.errors import NotFound, TooLarge
from tidelog.wire.groups import CommittedOffset, PartitionOffset, TopicPartitions

FOREIGN_GRACE_MS = 600_000
"""How long an offset of a topic that is gone is kept."""
METADATA_LIMIT_NAME = "offset.metadata.max.bytes"


class CommittedOffsets:
    """The offsets of one group. `items`: the stored values by topic and partition."""

    def __init__(self, context: GroupContext, items: Mapping[tuple[str, int], bytes]) -> None:
        self._context = context
        self._offsets: dict[str, dict[int, StoredOffset]] = {}
        for (topic, partition), value in items.items():
            self._of(topic)[partition] = msgspec.msgpack.decode(value, type=StoredOffset)
        self._topics: Topics | None = None
        self._foreign_since_ms: dict[str, int] = {}
        self._next_expiry_ms = 0

    def check(self, offsets: Iterable[PartitionOffset]) -> None:
        """Raise what is wrong with an offset of a commit."""
        for offset in offsets:
            self._info(offset.topic, offset.partition)
            if len(offset.metadata.encode()) > self._context.limits.metadata_bytes_max:
                raise TooLarge(
                    f"the metadata of the offset of {offset.topic} partition {offset.partition} is too long",
                    limit_name=METADATA_LIMIT_NAME,
                    limit_bytes=self._context.limits.metadata_bytes_max,
                )

    def commit(self, offsets: Iterable[PartitionOffset], *, by_member: bool) -> None:
        """Store `offsets`, which `check` accepts."""
        for offset in offsets:
            stored = StoredOffset(
                topic_id=self._context.topics[offset.topic].topic_id,
                offset=offset.offset,
                at_ms=self._context.moment.now_ms,
                leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
            )
            before = self._of(offset.topic).get(offset.partition)
            if by_member and before is not None and msgspec.structs.replace(stored, at_ms=before.at_ms) == before:
                continue
            self._of(offset.topic)[offset.partition] = stored
            self._context.put(offset_key(self._context.name, offset.topic, offset.partition), stored)
        if self._context.head is None:
            self._context.set_head(StoredHead(emptied_at_ms=self._context.moment.now_ms))

    def fetch(self, partitions: Iterable[TopicPartitions] | None) -> tuple[CommittedOffset, ...]:
        """The offsets of `partitions` (None: of all), by topic and partition."""
        if partitions is None:
            wanted = [(topic, number) for topic, offsets in self._offsets.items() for number in offsets]
        else:
            wanted = [(part.topic, number) for part in partitions for number in part.partitions]
        found = ((topic, number, self._current(topic, number)) for topic, number in sorted(set(wanted)))
        return tuple(_committed(topic, number, stored) for topic, number, stored in found if stored is not None)

    def delete(self, partitions: Iterable[TopicPartitions]) -> None:
        for part in partitions:
            for number in part.partitions:
                self._forget(part.topic, number)

    def delete_all(self) -> None:
        self.delete([TopicPartitions(topic, tuple(offsets)) for topic, offsets in self._offsets.items()])

    def tick(self, *, empty: bool) -> None:
        """Forget what is due. `empty`: the group has no members."""
        if self._context.topics is not self._topics:
            self._topics = self._context.topics
            self._notice_foreign()
        self._forget_foreign()
        if empty and self._expiry_ms() <= self._context.moment.now_ms:
            self._expire()

    def due_ms(self, *, empty: bool) -> int | None:
        """When to call `tick`, on the monotonic clock."""
        times = [at_ms + FOREIGN_GRACE_MS for at_ms in self._foreign_since_ms.values()]
        if empty and self._offsets:
            moment = self._context.moment
            times.append(moment.monotonic_ms + max(self._expiry_ms() - moment.now_ms, 0))
        return min(times, default=None)

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def _of(self, topic: str) -> dict[int, StoredOffset]:
        return self._offsets.setdefault(topic, {})

    def _info(self, topic: str, partition: int) -> TopicInfo:
        info = self._context.topics.get(topic)
        if info is None:
            raise NotFound(f"there is no topic {topic}")
        if partition >= info.partitions:
            raise NotFound(f"the topic {topic} has {info.partitions} partitions; there is no partition {partition}")
        return info

    def _current(self, topic: str, number: int) -> StoredOffset | None:
        info, stored = self._context.topics.get(topic), self._offsets.get(topic, {}).get(number)
        return stored if info is not None and stored is not None and stored.topic_id == info.topic_id else None

    def _forget(self, topic: str, number: int) -> None:
        offsets = self._offsets.get(topic, {})
        if offsets.pop(number, None) is None:
            return
        self._context.delete(offset_key(self._context.name, topic, number))
        if not offsets:
            del self._offsets[topic]
            self._foreign_since_ms.pop(topic, None)

    def _notice_foreign(self) -> None:
        for topic in self._offsets:
            if self._foreign(topic):
                self._foreign_since_ms.setdefault(topic, self._context.moment.monotonic_ms)
            else:
                self._foreign_since_ms.pop(topic, None)

    def _foreign(self, topic: str) -> list[int]:
        return [number for number in self._offsets[topic] if self._current(topic, number) is None]

    def _forget_foreign(self) -> None:
        since_ms = self._context.moment.monotonic_ms - FOREIGN_GRACE_MS
        for topic in [topic for topic, at_ms in self._foreign_since_ms.items() if at_ms <= since_ms]:
            del self._foreign_since_ms[topic]
            for number in self._foreign(topic):
                self._forget(topic, number)

    def _expiry_ms(self) -> int:
        """When the first offset may be due, by the calendar."""
        return max(self._emptied_at_ms() + self._context.limits.offsets_retention_ms, self._next_expiry_ms)

    def _expire(self) -> None:
        kept_from_ms = self._context.moment.now_ms - self._context.limits.offsets_retention_ms
        everything = [(topic, number, kept) for topic, part in self._offsets.items() for number, kept in part.items()]
        for topic, number, stored in everything:
            if stored.at_ms <= kept_from_ms:
                self._forget(topic, number)
        oldest_ms = min((kept.at_ms for part in self._offsets.values() for kept in part.values()), default=0)
        self._next_expiry_ms = oldest_ms + self._context.limits.offsets_retention_ms

    def _emptied_at_ms(self) -> int:
        return self._context.head.emptied_at_ms if self._context.head else 0


def _committed(topic: str, number: int, stored: StoredOffset) -> CommittedOffset:
    return CommittedOffset(
        topic=topic,
        partition=number,
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        committed_at_ms=stored.at_ms,
    )
