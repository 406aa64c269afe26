"""The position of a verification, as values and as JSON, so that an interrupted one can continue.

The content of the write-ahead logs is part of it. It stays valid: manifests that are read later only reach further
(inv. 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tidelog.storage.bucket.finding import Finding, Summary
from tidelog.storage.bucket.verify.wal_check import WalContent
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.segments.topic_segment import SegmentPlace

STATE_FORMAT_VERSION = 3
FINDINGS_MAX = 10_000
"""This many findings are kept, to be reported again after an interruption; later ones are only counted."""


@dataclass(frozen=True)
class Suspicion:
    """A finding about a segment that can be judged only after the write-ahead logs were read again."""

    place: SegmentPlace
    finding: Finding


@dataclass
class WalkState:
    """`shards`: those whose manifest was checked. `after`: the segments up to this key were checked, "" for none.
    `seen` maps topic ids to names (two names of one id are a fault) and their highest partition, -1 for none."""

    store: str
    deep: bool
    wal_done: bool = False
    wal: WalContent = field(default_factory=dict)
    shards: set[int] = field(default_factory=set)
    after: str = ""
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    suspects: list[Suspicion] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    findings: list[Finding] = field(default_factory=list)
    format_version: int = STATE_FORMAT_VERSION

    def see(self, place: SegmentPlace, highest: int) -> None:
        """Note that the topic has objects or a manifest in the shard, and partitions up to `highest`."""
        names = self.seen.setdefault(place.topic_id, {})
        names[place.topic] = max(highest, names.get(place.topic, -1))


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
