"""Looks at every write-ahead log of a bucket, and at what is beside logs, topics and the journal."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from tidelog.storage.bucket.copy_state import CopyState, decode_copy_state
from tidelog.storage.bucket.finding import Finding, Looked, Seen, Severity
from tidelog.storage.bucket.index_check import IndexCheck
from tidelog.storage.bucket.wal_check import Stretch, WalCheck
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import (
    COPY_KEY,
    META_PREFIX,
    STAGING_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    TopicPartition,
    floor_key,
    index_prefix,
    number_of,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.wal import Wal
from tidelog.storage.wal_codec import ParquetWalCodec

_OURS = (META_PREFIX, STAGING_PREFIX, TOPICS_PREFIX, WAL_PREFIX)


class WalWalk:
    """One walk over all logs. `stretches` and `below` grow with it (`wal_check`)."""

    def __init__(self, store: ObjectStore, *, deep: bool = False, at_once: int = 16) -> None:
        self._store = store
        self._deep = deep
        self._at_once = at_once
        self.stretches: dict[TopicPartition, Stretch] = {}
        self.below: dict[TopicPartition, Stretch] = {}

    async def findings(self) -> AsyncIterator[Seen]:
        """What is wrong, and between that each object once it is looked at."""
        shards = set()
        async for info in list_all(self._store, WAL_PREFIX):
            shard = shard_of(info.key)
            if shard is None:
                yield Finding(Severity.WARNING, info.key, "is none of Tidelog's objects", info.size)
            else:
                shards.add(shard)
        for shard in sorted(shards):
            wal = Wal(self._store, shard, ParquetWalCodec())
            check = WalCheck(wal, IndexCheck(self._store, shard), deep=self._deep, at_once=self._at_once)
            async for seen in check.findings():
                yield seen
            for place, stretch in check.stretches.items():
                if place in self.stretches:
                    text = f"holds {place.topic_id}/{place.partition}, which lives in another shard"
                    yield Finding(Severity.ERROR, stretch.key, text)
                self.stretches[place] = stretch
            self.below.update(check.below)


def shard_of(key: str) -> int | None:
    """The shard whose entry, floor or index `key` names; None if it is none of them."""
    found = re.match(r"wal/(\d{4,})/", key)
    if found is None:
        return None
    shard = int(found.group(1))
    is_entry = number_of(key, wal_prefix(shard), wal_suffix()) is not None
    is_block = number_of(key, index_prefix(shard), wal_suffix()) is not None
    return shard if is_entry or is_block or key == floor_key(shard) else None


async def strangers(store: ObjectStore) -> AsyncIterator[Seen]:
    """What lies at the top of the bucket and is not ours, a finding a folder and a request each; what is staged, which
    the sweep judges; and the mark of a copy that is not whole."""
    after = ""
    while page := await store.list("", start_after=after, limit=1):
        folder, slash, _ = page[0].key.partition("/")
        top = f"{folder}{slash}"
        if top == STAGING_PREFIX:
            async for info in list_all(store, STAGING_PREFIX):
                yield Looked(info.size)
        elif top == COPY_KEY:
            async for seen in _copy_mark(store):
                yield seen
        elif top not in _OURS:
            yield Finding(Severity.WARNING, top, "is none of Tidelog's objects", page[0].size)
        after = f"{folder}0" if slash else page[0].key  # "0" is the character behind "/": past the whole folder


async def _copy_mark(store: ObjectStore) -> AsyncIterator[Seen]:
    try:
        stored = await store.get(COPY_KEY)
        state: CopyState = decode_copy_state(stored.data)
    except NotFound:
        return
    except Corrupt as error:
        yield Finding(Severity.ERROR, error.name, error.reason)
        return
    if not state.whole:
        text = f"is of a copy of {state.source} that was not finished: run `tidelog bucket copy` again"
        yield Finding(Severity.ERROR, COPY_KEY, text)
    yield Looked(stored.info.size)
