"""Copies a bucket while it is being written, so that a backup is a bucket: `tidelog bucket copy SRC DST`.

    copy = BucketCopy(source, target, topics, cluster_id, runtime)
    report = await copy.run()

A broker that starts on the copy serves every record that was acknowledged before the copy began, and some that came
later. What makes it consistent is the order:

1. **Bulk**: segments, which are nearly all of it and never change, as often as it takes until little is left to do.
   The target's manifests and logs stay as they are, so an earlier copy there stays good.
2. **Cuts**, a shard at a time (`copy_shard`): floor, then manifests, then the log. From here to the end the target is
   marked as not whole.
3. **The journal** last: so it has every topic that the logs have records of, without which a broker would take those
   for a deleted topic's and let go of them.
4. The **mark** (`copy_state`): whose copy it is, that it is whole, and where its logs end.

What is there already with the same size is skipped; entries, of which a broker that was started on the copy could have
written others, are compared. So running again goes on where it was interrupted, and later brings what is new and takes
away what is gone. The target is empty before, or an earlier copy of the same cluster that nobody has written to since.
Left out is what the log does not need: garbage, orphans, staging, the index of write-ahead logs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from tidelog.storage.bucket.copy_partition import PartitionCopy
from tidelog.storage.bucket.copy_shard import ShardCopy
from tidelog.storage.bucket.copy_state import CopyState, decode_copy_state, encode_copy_state
from tidelog.storage.bucket.copy_transfer import CopyReport, Transfer
from tidelog.storage.bucket.known_topics import KnownTopic, TopicKnowledge
from tidelog.storage.bucket.topic_listing import TopicName
from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.floor_trust import GRACE_S_MIN
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    COPY_KEY,
    META_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    number_of,
    topic_prefix,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime

PARTITIONS_AT_ONCE = 8
ROUNDS_MAX = 16
JOURNAL_SUFFIX = ".json"


@dataclass(frozen=True)
class CopySettings:
    """`grace_s`: no broker of the source deletes sooner (`delete.grace.ms`); the longer, the larger the shards that can
    be copied while they are archived."""

    grace_s: float = GRACE_S_MIN


class BucketCopy:
    """One copy. `transfer` has the stores; `cluster_id` is the source's identity, empty if it has none yet."""

    def __init__(
        self,
        transfer: Transfer,
        topics: TopicKnowledge,
        cluster_id: str,
        runtime: Runtime,
        settings: CopySettings | None = None,
    ) -> None:
        self._transfer = transfer
        self._source = transfer.source
        self._target = transfer.target
        self._topics = topics
        self._cluster_id = cluster_id
        self._clock = runtime.clock
        self._settings = settings or CopySettings()

    async def run(self) -> CopyReport:
        """Copy, or bring an earlier copy up to date. Raises `Conflict` for a target that is none, or has been written
        to; `Corrupt`, `Unavailable`: running again goes on."""
        before = await self._earlier()
        state = before or CopyState(self._source.url, self._cluster_id, whole=False)
        if before is None:
            await self._mark(state)
        await self._name_unheard()
        await self._bulk()
        state = replace(state, source=self._source.url, cluster_id=self._cluster_id, whole=False)
        await self._mark(state)
        ends = {}
        for shard in await self._shards():
            ends[shard] = await self._shard(shard).cut()
        await self._forget_topics()  # before the journal: what it calls live then is there
        journal_end = await self._copy_journal()
        whole = self._transfer.report.whole
        await self._mark(
            replace(state, whole=whole, wal_ends=ends, journal_end=journal_end, copied_at_ms=self._clock.now_ms())
        )
        return self._transfer.report

    # ---- the target

    async def _earlier(self) -> CopyState | None:
        """The mark of an earlier copy; None if the target is empty."""
        if self._source.url == self._target.url:
            raise Conflict("a bucket is no copy of itself: name another target")
        try:
            state = decode_copy_state((await self._target.get(COPY_KEY)).data)
        except NotFound:
            if await self._target.list("", limit=1):
                raise Conflict(f"{self._target.url} holds other objects: take an empty bucket for the copy") from None
            return None
        if state.cluster_id not in ("", self._cluster_id):
            raise Conflict(f"{self._target.url} is a copy of cluster {state.cluster_id}, not of {self._cluster_id}")
        if state.whole:
            await self._refuse_used(state)
        return state

    async def _refuse_used(self, state: CopyState) -> None:
        """Raise if somebody has appended to a log of the copy."""
        journal = ObjectLog(self._target, META_PREFIX, JOURNAL_SUFFIX)
        ends = [("journal", await journal.newest(state.journal_end - 1) + 1, state.journal_end)]
        async for shard in shards_in(self._target):
            log, end = ObjectLog(self._target, wal_prefix(shard), wal_suffix()), state.wal_ends.get(shard, 0)
            ends.append((f"shard {shard}", await log.newest(end - 1) + 1, end))
        for name, found, copied in ends:
            if found > copied:
                raise Conflict(
                    f"{self._target.url} has been written to since it was copied ({name} had {copied} entries, and has "
                    f"{found}): a broker runs on it. Take an empty bucket for the copy"
                )

    async def _mark(self, state: CopyState) -> None:
        await self._target.put(COPY_KEY, encode_copy_state(state))

    # ---- topics

    async def _name_unheard(self) -> None:
        """Topics of which the journal never heard cannot be copied, since no broker would serve them: its entries are
        lost, and whoever makes a backup has to know."""
        names = [name async for name in topics_in(self._source)]
        topics = await self._topics.topics()
        unheard = {name.topic_id for name in names} - topics.keys()
        unheard -= set(await self._topics.deleted(unheard)) if unheard else set()
        for name in names:
            if name.topic_id in unheard:
                self._transfer.is_damaged(name.prefix, "is a topic of which the journal never heard: it is not copied")

    async def _bulk(self) -> None:
        """Rounds, until another would leave as much to the cut as there is now."""
        before: int | None = None
        for _ in range(ROUNDS_MAX):
            began_s, had = self._clock.monotonic(), self._transfer.report.copied_bytes
            topics = await self._live()
            parts = ((topic, partition) for topic in topics.values() for partition in range(len(topic.shards)))
            async for _item in in_order(parts, self._copy_segments, at_once=PARTITIONS_AT_ONCE):
                pass
            copied = self._transfer.report.copied_bytes - had
            if is_settled(self._clock.monotonic() - began_s, self._settings.grace_s, copied, before):
                return
            before = copied

    async def _copy_segments(self, part: tuple[KnownTopic, int]) -> None:
        await self._partition(*part).segments()

    async def _publish(self, shard: int) -> None:
        async def publish(part: tuple[KnownTopic, int]) -> None:
            await self._partition(*part).publish()

        topics = await self._live()
        parts = ((topic, p) for topic in topics.values() for p, of in enumerate(topic.shards) if of == shard)
        async for _ in in_order(parts, publish, at_once=PARTITIONS_AT_ONCE):
            pass

    def _partition(self, topic: KnownTopic, partition: int) -> PartitionCopy:
        async def is_deleted() -> bool:
            return topic.topic_id not in await self._live()

        return PartitionCopy(self._transfer, topic, partition, is_deleted)

    async def _live(self) -> Mapping[str, KnownTopic]:
        return {key: topic for key, topic in (await self._topics.topics()).items() if not topic.removing}

    async def _forget_topics(self) -> None:
        """Of an earlier copy, topics that were deleted since."""
        live = {topic_prefix(topic.name, topic.topic_id) for topic in (await self._live()).values()}
        async for info in list_all(self._target, TOPICS_PREFIX):
            if "/".join(info.key.split("/", 3)[:3]) + "/" not in live:
                await self._transfer.delete(info.key)

    # ---- logs

    async def _shards(self) -> list[int]:
        of_topics = {shard for topic in (await self._live()).values() for shard in topic.shards}
        return sorted(of_topics | {shard async for shard in shards_in(self._source)})

    def _shard(self, shard: int) -> ShardCopy:
        return ShardCopy(self._transfer, shard, self._publish, self._clock, self._settings.grace_s)

    async def _copy_journal(self) -> int:
        """Every entry; how many there are."""
        present = await self._transfer.sizes(META_PREFIX)
        listed = [info async for info in list_all(self._source, META_PREFIX)]
        entries = [info for info in listed if number_of(info.key, META_PREFIX, JOURNAL_SUFFIX) is not None]
        new = [info for info in entries if info.key not in present]
        if len(new) < len(entries) and not await self._transfer.same(entries[len(entries) - len(new) - 1]):
            raise Conflict(f"{self._target.url} has another journal than the source: take an empty bucket for the copy")
        self._transfer.skip(
            len(entries) - len(new), sum(info.size for info in entries) - sum(info.size for info in new)
        )
        for info in new:  # in their order: a copy that is cut off here has no hole
            await self._transfer.copy(info.key, info.size)
        return len(entries)


def is_settled(took_s: float, grace_s: float, copied_bytes: int, copied_before: int | None) -> bool:
    """Whether a round of the bulk was the last one: it took little of the grace, so the cut will take about as little;
    or it found nothing, or about as much as the one before it, and so would the next."""
    quick = took_s < grace_s / 4
    shrinks = copied_before is None or copied_bytes <= copied_before / 2
    return quick or copied_bytes == 0 or not shrinks


async def topics_in(store: ObjectStore) -> AsyncIterator[TopicName]:
    """The topics that have any object; a request each."""
    after = TOPICS_PREFIX
    while page := await store.list(TOPICS_PREFIX, start_after=after, limit=1):
        parts = page[0].key.split("/")
        after = page[0].key
        if len(parts) > 3:
            name = TopicName(parts[1], parts[2])
            yield name
            after = name.prefix.removesuffix("/") + "0"  # "0" is the character behind "/": past all of its objects


async def shards_in(store: ObjectStore) -> AsyncIterator[int]:
    """The shards that have any object, ascending; a request each."""
    after = WAL_PREFIX
    while page := await store.list(WAL_PREFIX, start_after=after, limit=1):
        name = page[0].key.removeprefix(WAL_PREFIX).partition("/")[0]
        if name.isdigit():
            yield int(name)
        after = f"{WAL_PREFIX}{name}0"  # "0" is the character behind "/": past all of this shard's objects
