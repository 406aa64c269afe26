"""The mark that a copy of a bucket carries: whose it is, whether it is whole, and up to where it holds each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tidelog.storage.errors import Corrupt
from tidelog.storage.json_checksum import check_checksum, with_checksum
from tidelog.storage.layout import COPY_KEY

COPY_FORMAT_VERSION = 1


@dataclass(frozen=True)
class CopyState:
    """A copy of the bucket at `source`, of the cluster `cluster_id` (empty: it has no identity yet). `wal_ends` is the
    next number of each shard's log, `journal_end` that of the journal: whatever lies beyond was written by a broker
    that runs on the copy. While it is not `whole` logs and manifests may not meet."""

    source: str
    cluster_id: str
    whole: bool
    wal_ends: Mapping[int, int] = field(default_factory=dict)
    journal_end: int = 0
    copied_at_ms: int = 0
    format_version: int = COPY_FORMAT_VERSION


def encode_copy_state(state: CopyState) -> bytes:
    return with_checksum(msgspec.json.encode(state))


def decode_copy_state(data: bytes) -> CopyState:
    """Raises `Corrupt`."""
    try:
        state = msgspec.json.decode(data, type=CopyState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(COPY_KEY, f"is not the mark of a copy: {error}") from error
    if state.format_version != COPY_FORMAT_VERSION:
        raise Corrupt(COPY_KEY, f"is of format version {state.format_version}; known is {COPY_FORMAT_VERSION}")
    check_checksum(COPY_KEY, data)
    return state
