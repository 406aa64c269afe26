"""What whoever looks at a bucket as a whole has to know of topics. The journal tells it, which storage does not know:
the coordinator reads it and hands a `TopicKnowledge` in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class KnownTopic:
    """A topic; `shards[p]` is the shard that partition `p` lives in. `removing`: it was deleted, and its objects are
    being removed."""

    name: str
    topic_id: str
    shards: tuple[int, ...]
    removing: bool = False


class TopicKnowledge(Protocol):
    """Both raise `Corrupt`, `Unavailable`."""

    async def topics(self) -> Mapping[str, KnownTopic]:
        """By id, as of now: those that are there, and those that are being removed. A topic is in it before any object
        of it is in the bucket."""
        ...

    async def deleted(self, topic_ids: Collection[str]) -> Collection[str]:
        """Those of `topic_ids` that were deleted for certain. One that is in neither answer was never heard of: then
        the journal is not whole, or another's."""
        ...
