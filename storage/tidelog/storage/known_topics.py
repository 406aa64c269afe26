"""What whoever looks at a bucket as a whole has to know of topics. The journal tells it, which storage does not know:
the coordinator reads it and hands a `TopicsNow` in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum


class TopicState(Enum):
    """LIVE: it is there. REMOVING: it was deleted, its objects are being removed. GONE: they were."""

    LIVE = "live"
    REMOVING = "removing"
    GONE = "gone"


@dataclass(frozen=True)
class KnownTopic:
    """A topic that is or was; `shards[p]` is the shard that partition `p` lives in."""

    name: str
    topic_id: str
    shards: tuple[int, ...]
    state: TopicState = TopicState.LIVE


TopicsNow = Callable[[], Awaitable[Mapping[str, KnownTopic]]]
"""Every topic that the journal has ever known, by id, as of now. Raises `Corrupt`, `Unavailable`."""
