"""The offsets of a stream as its checkpoint holds them: the next offset of each partition, in the JSON form of Spark's
Kafka source.

    {"web": {"0": 23, "1": 7}, "web#0123456789abcdef0123456789abcdef": {}}

- A member with a `#` says which topic the name meant: a topic that is deleted and created again has another id. To
  Spark's Kafka source it is a topic without partitions, so each source reads the checkpoints of the other.
- A checkpoint that Spark's Kafka source wrote has no ids. Then the name means the topic that has it now.
- ``{}`` is the beginning of a stream, before its first offsets are chosen, and nothing else. A stream that has begun
  and has no topic yet is ``{"#": {}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tidelog.storage.errors import Invalid

OffsetJson = dict[str, dict[str, int]]
"""As Spark's Python sources exchange it."""

_NO_TOPIC = "#"


@dataclass(frozen=True)
class TopicOffsets:
    """The next offset of each partition. `topic_id` None: of the topic that has the name now."""

    topic_id: str | None
    next_offsets: Mapping[int, int]

    def moved(self, next_offsets: Mapping[int, int]) -> TopicOffsets:
        return TopicOffsets(self.topic_id, next_offsets)

    def is_of(self, other: TopicOffsets) -> bool:
        """Whether both may be of the same topic."""
        return self.topic_id is None or other.topic_id is None or self.topic_id == other.topic_id


@dataclass(frozen=True)
class StreamOffsets:
    """Offsets by topic. `begun` is False only for the beginning of a stream."""

    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    begun: bool = True

    @property
    def has_ids(self) -> bool:
        """Whether this source wrote them."""
        return all(topic.topic_id is not None for topic in self.topics.values())

    def json(self) -> OffsetJson:
        """Equal offsets give equal text, because Spark compares the text."""
        if not self.begun:
            return {}
        if not self.topics:
            return {_NO_TOPIC: {}}
        ids = {f"{name}#{topic.topic_id}": dict[str, int]() for name, topic in self.topics.items() if topic.topic_id}
        offsets = {
            name: {str(partition): offset for partition, offset in sorted(topic.next_offsets.items())}
            for name, topic in self.topics.items()
        }
        return dict(sorted({**offsets, **ids}.items()))


BEGINNING = StreamOffsets(begun=False)


def parse_stream_offsets(given: object) -> StreamOffsets:
    """The offsets that Spark hands back, or those of a checkpoint that was edited. Raises `Invalid`."""
    try:
        members = msgspec.convert(given, dict[str, dict[int, int]], strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"the offsets of the checkpoint are not those of a stream: {str(given)[:200]} ({error})"
        ) from None
    if not members:
        return BEGINNING
    ids = dict(name.split("#", 1) for name in members if "#" in name)
    named = {name: offsets for name, offsets in members.items() if "#" not in name}
    return StreamOffsets({name: TopicOffsets(ids.get(name), offsets) for name, offsets in named.items()})
