"""The mark of a bucket that is a copy (`bucket.copy`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tidelog.storage.errors import Corrupt
from tidelog.storage.formats import COPY_MARK
from tidelog.storage.json_checksum import check_checksum, with_checksum
from tidelog.storage.layout import COPY_KEY


@dataclass(frozen=True)
class CopyMark:
    """The object by which a bucket is known as a copy of the bucket `source` of the cluster `cluster_id` (empty: it has
    no identity yet). `wal_ends` has the next number of each shard's log, `manifest_ends` that of its manifest,
    `journal_end` that of the journal: entries beyond were written by a broker on the copy. Until `whole` is set, logs
    and manifests may not meet."""

    source: str
    cluster_id: str
    whole: bool
    wal_ends: Mapping[int, int] = field(default_factory=dict)
    manifest_ends: Mapping[int, int] = field(default_factory=dict)
    journal_end: int = 0
    copied_at_ms: int = 0
    format_version: int = COPY_MARK.newest


def encode_copy_mark(mark: CopyMark) -> bytes:
    return with_checksum(msgspec.json.encode(mark))


def decode_copy_mark(data: bytes) -> CopyMark:
    """Raises `Corrupt`, `NewerFormat`."""
    try:
        mark = msgspec.json.decode(data, type=CopyMark)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Corrupt(COPY_KEY, f"is not the mark of a copy: {fault}") from fault
    check_checksum(COPY_KEY, data)
    COPY_MARK.check(COPY_KEY, mark.format_version)
    return mark
