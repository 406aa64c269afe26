"""Where a verification stands, so that one that was interrupted goes on: values, and their JSON.

What was read of the write-ahead logs is kept, and stays true: manifests that are read later only have more (inv. 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tidelog.storage.bucket.finding import Finding, Summary
from tidelog.storage.bucket.topic_listing import TopicName
from tidelog.storage.bucket.wal_check import Stretch
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import TopicPartition

STATE_FORMAT_VERSION = 1
FINDINGS_MAX = 10_000
"""So many findings are kept to be told again when the walk goes on; of what comes later only the count is."""


@dataclass(frozen=True)
class Suspicion:
    """A finding about a partition that can only be told once the write-ahead logs were read again."""

    topic: str
    place: TopicPartition
    finding: Finding


@dataclass
class WalkState:
    """`topic` is the one being looked at, `done` its partitions that are. `reached` says for partitions under way up to
    which offset they are looked at. `seen` are the topics there are, by id, with each name and its highest partition
    (two names of one id would be a fault); `met` those partitions of the write-ahead logs that have objects there."""

    store: str
    deep: bool
    wal_done: bool = False
    stretches: list[tuple[TopicPartition, Stretch]] = field(default_factory=list)
    below: list[tuple[TopicPartition, Stretch]] = field(default_factory=list)
    topic: TopicName | None = None
    done: set[int] = field(default_factory=set)
    reached: dict[str, int] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    met: set[TopicPartition] = field(default_factory=set)
    suspects: list[Suspicion] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    findings: list[Finding] = field(default_factory=list)
    format_version: int = STATE_FORMAT_VERSION

    def see(self, name: TopicName, place: TopicPartition, *, in_wal: bool) -> None:
        """There are objects of that partition."""
        names = self.seen.setdefault(name.topic_id, {})
        names[name.topic] = max(place.partition, names.get(name.topic, 0))
        if in_wal:
            self.met.add(place)


def encode_state(state: WalkState) -> bytes:
    return msgspec.json.encode(state)


def decode_state(name: str, data: bytes, *, store: str, deep: bool) -> WalkState:
    """The state in the file `name`. Raises `Corrupt`; `Invalid` if it is of another bucket or of another walk."""
    try:
        state = msgspec.json.decode(data, type=WalkState)
    except msgspec.DecodeError as error:
        raise Corrupt(name, f"is no state of a verification: {error}; delete it to begin anew") from error
    if state.format_version != STATE_FORMAT_VERSION:
        raise Corrupt(name, f"is of format version {state.format_version}; delete it to begin anew")
    if (state.store, state.deep) != (store, deep):
        kind = "deep" if state.deep else "shallow"
        raise Invalid(f"{name} is of a {kind} verification of {state.store}: name another file, or delete it")
    return state
