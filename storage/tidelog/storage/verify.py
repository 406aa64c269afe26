"""Walks a bucket and proves it: what `tidelog bucket verify` prints.

    verification = BucketVerification(store, deep=True)
    async for finding in verification.findings():
        print(finding.severity.value, finding.key, finding.text)

Write-ahead logs come first and manifests second, so that a broker may run meanwhile: what it archives in between is in
the manifests that are read later, and no gap appears that is none (inv. 5). Shallow: listings, the header of every WAL
entry, every newest manifest. Deep: every byte of every entry and segment, one object in memory at a time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from tidelog.storage.finding import Finding, Progress, Severity
from tidelog.storage.layout import (
    TOPICS_PREFIX,
    WAL_PREFIX,
    floor_key,
    index_prefix,
    number_of,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all
from tidelog.storage.topic_check import TopicCheck, TopicName, topic_of
from tidelog.storage.wal import Wal
from tidelog.storage.wal_check import Stretch, WalCheck
from tidelog.storage.wal_codec import ParquetWalCodec


class BucketVerification:
    """One walk. `progress` grows with it, and `on_progress` is told of every object."""

    def __init__(
        self, store: ObjectStore, *, deep: bool = False, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self._store = store
        self._deep = deep
        self._on_progress = on_progress
        self._stretches: defaultdict[str, dict[int, Stretch]] = defaultdict(dict)
        self.progress = Progress()

    async def findings(self) -> AsyncIterator[Finding]:
        """Everything that is not as it should be, as it is found. Raises `Unavailable`, `Denied`."""
        async for finding in self._wal_findings():
            yield finding
        async for finding in self._topic_findings():
            yield finding
        for topic_id, stretches in self._stretches.items():
            for finding in unarchived_findings(topic_id, stretches):
                yield finding

    async def _wal_findings(self) -> AsyncIterator[Finding]:
        shards = set()
        async for info in list_all(self._store, WAL_PREFIX):
            shard = shard_of(info.key)
            if shard is None:
                yield Finding(Severity.WARNING, info.key, "is none of Tidelog's objects", info.size)
            else:
                shards.add(shard)
        for shard in sorted(shards):
            check = WalCheck(Wal(self._store, shard, ParquetWalCodec()), deep=self._deep)
            async for seen in check.findings():
                if isinstance(seen, Finding):
                    yield seen
                else:
                    self._count(seen.size_bytes)
            for place, stretch in check.stretches.items():
                of_topic = self._stretches[place.topic_id]
                if place.partition in of_topic:
                    text = f"holds {place.topic_id}/{place.partition}, which lives in another shard"
                    yield Finding(Severity.ERROR, stretch.key, text)
                of_topic[place.partition] = stretch

    async def _topic_findings(self) -> AsyncIterator[Finding]:
        """Topic by topic; a listing of one is in memory at a time."""
        name: TopicName | None = None
        infos: list[ObjectInfo] = []
        async for info in list_all(self._store, TOPICS_PREFIX):
            of = topic_of(info.key)
            if of is None:
                yield Finding(Severity.WARNING, info.key, "is none of Tidelog's objects", info.size)
                continue
            if name is not None and of != name:
                async for finding in self._check_topic(name, infos):
                    yield finding
                infos = []
            name = of
            infos.append(info)
        if name is not None:
            async for finding in self._check_topic(name, infos):
                yield finding

    async def _check_topic(self, name: TopicName, infos: list[ObjectInfo]) -> AsyncIterator[Finding]:
        stretches = self._stretches.pop(name.topic_id, {})
        async for seen in TopicCheck(self._store, name, infos, deep=self._deep).findings(stretches):
            if isinstance(seen, Finding):
                yield seen
            else:
                self._count(seen.size)

    def _count(self, size_bytes: int) -> None:
        self.progress = self.progress.plus(size_bytes)
        if self._on_progress:
            self._on_progress(self.progress)


def shard_of(key: str) -> int | None:
    """The shard whose entry, floor or index `key` names; None if it is none of them."""
    found = re.match(r"wal/(\d{4,})/", key)
    if found is None:
        return None
    shard = int(found.group(1))
    is_entry = number_of(key, wal_prefix(shard), wal_suffix()) is not None
    is_block = number_of(key, index_prefix(shard), wal_suffix()) is not None
    return shard if is_entry or is_block or key == floor_key(shard) else None


def unarchived_findings(topic_id: str, stretches: Mapping[int, Stretch]) -> Iterator[Finding]:
    """For a topic that is in the WAL and has no object under `topics/`: its partitions begin at offset 0, unless it
    was deleted and its records wait to be let go of."""
    for partition, stretch in stretches.items():
        if stretch.base_offset > 0:
            text = (
                f"begins at offset {stretch.base_offset} of {topic_id}/{partition}, which has no manifest: "
                "its topic was deleted, or its manifests are lost"
            )
            yield Finding(Severity.WARNING, stretch.key, text)
