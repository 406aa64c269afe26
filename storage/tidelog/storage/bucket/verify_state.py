"""The position of a verification, as values and as JSON, so that an interrupted one can continue.

The content of the write-ahead logs is part of it. It stays valid: manifests that are read later only reach further
(inv. 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tidelog.storage.bucket.finding import Finding, Summary
from tidelog.storage.bucket.listing import TopicName
from tidelog.storage.bucket.wal_check import Stretch, WalContent
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.layout import TopicPartition

STATE_FORMAT_VERSION = 1
FINDINGS_MAX = 10_000
"""This many findings are kept, to be reported again after an interruption; later ones are only counted."""


@dataclass(frozen=True)
class Suspicion:
    """A finding about a partition that can be judged only after the write-ahead logs were read again."""

    topic: str
    place: TopicPartition
    finding: Finding


@dataclass
class WalkState:
    """`topic` is the topic in progress, and `done` its finished partitions. `reached` maps each partition in progress
    to the offset below which it is checked. `seen` maps topic ids to names (two names of one id are a fault) and their
    highest partition. `met` are the partitions of the write-ahead logs that also have objects under ``topics/``."""

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

    @property
    def wal(self) -> WalContent:
        return WalContent(dict(self.stretches), dict(self.below))

    def finish_wal(self, content: WalContent) -> None:
        self.stretches, self.below = list(content.stretches.items()), list(content.below.items())
        self.wal_done = True

    def see(self, name: TopicName, place: TopicPartition, *, in_wal: bool) -> None:
        """Note that the partition has objects under ``topics/``."""
        names = self.seen.setdefault(name.topic_id, {})
        names[name.topic] = max(place.partition, names.get(name.topic, 0))
        if in_wal:
            self.met.add(place)


def encode_state(state: WalkState) -> bytes:
    return msgspec.json.encode(state)


def decode_state(name: str, data: bytes, *, store: str, deep: bool) -> WalkState:
    """The state in the file `name`. Raises `Corrupt`; `Invalid` if it belongs to another bucket or kind of walk."""
    try:
        state = msgspec.json.decode(data, type=WalkState)
    except msgspec.DecodeError as error:
        raise Corrupt(name, f"is not the state of a verification: {error}; delete it to start again") from error
    if state.format_version != STATE_FORMAT_VERSION:
        raise Corrupt(name, f"is of format version {state.format_version}; delete it to start again")
    if (state.store, state.deep) != (store, deep):
        kind = "deep" if state.deep else "shallow"
        raise Invalid(f"{name} belongs to a {kind} verification of {state.store}: name another file, or delete it")
    return state
