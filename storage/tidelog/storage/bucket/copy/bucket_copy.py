"""Copies a bucket while it is being written: `tidelog bucket copy SRC DST`. The copy is a complete bucket.

    copy = BucketCopy(Transfer(source, target), topics, cluster_id, runtime)
    report = await copy.run()

A broker that starts on the copy serves every record that was acknowledged before the copy began, and some later ones.
The order makes the copy consistent:

1. **Bulk**: segments, which are most of the bytes and never change, and lists. The round is repeated until little is
   left. The target's manifests and logs do not change, so an earlier copy in the target stays valid.
2. **Groups** (`copy_groups`): before the logs, so that no committed offset is beyond the end of a log.
3. **Cuts**, one shard at a time (`copy_shard`): the manifest, then the log from its floor on. From here to the end the
   target is marked as not whole.
4. **The journal**, last: it then knows every topic that has records in the logs. A broker drops records of topics that
   its journal does not know, because it takes them for those of deleted topics.
5. The **mark**: whose copy this is, that it is whole, and where its logs end.

An object that the target has with the same size is skipped. Entries are compared by their bytes, because a broker that
was started on the copy could have written others. So a second run continues an interrupted one, and a later run copies
what is new and removes what is gone. The target must be empty, or an earlier copy of the same cluster that nobody has
written to. Garbage, orphans, staged objects and the index of write-ahead logs are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.storage.bucket.copy.copy_groups import copy_groups
from tidelog.storage.bucket.copy.copy_shard import Cut, ShardCopy
from tidelog.storage.bucket.copy.transfer import CopyReport, Transfer
from tidelog.storage.bucket.copy_mark import CopyMark, decode_copy_mark, encode_copy_mark
from tidelog.storage.bucket.finding import error
from tidelog.storage.bucket.known_topics import TopicKnowledge, journal_view, live_topics
from tidelog.storage.bucket.listing import SegmentPage, list_segments, shards_in, topics_in
from tidelog.storage.errors import Conflict, NotFound
from tidelog.storage.layout import (
    COPY_KEY,
    META_PREFIX,
    manifests_prefix,
    topic_prefix,
    wal_prefix,
    wal_suffix,
)
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.runtime import Runtime
from tidelog.storage.wal.floor_trust import GRACE_S_MIN

ROUNDS_MAX = 16
JOURNAL_SUFFIX = ".json"


class BucketCopy:
    """One copy. `cluster_id` is the identity of the source, empty if it has none yet. No broker of the source deletes
    anything sooner than `grace_s` (`delete.grace.ms`): a longer grace allows larger shards to be copied while they are
    archived."""

    def __init__(
        self,
        transfer: Transfer,
        topics: TopicKnowledge,
        cluster_id: str,
        runtime: Runtime,
        grace_s: float = GRACE_S_MIN,
    ) -> None:
        self._transfer = transfer
        self._source = transfer.source
        self._target = transfer.target
        self._topics = topics
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._clock = runtime.clock
        self._grace_s = grace_s

    async def run(self) -> CopyReport:
        """Copy, or bring an earlier copy up to date. Raises `Conflict` if the target is no copy, or was written to;
        `Corrupt`, `Unavailable`: running again continues."""
        earlier = await self._earlier()
        mark = earlier or CopyMark(self._source.url, self._cluster_id, whole=False)
        if earlier is None:
            await self._write_mark(mark)
        await self._name_unknown_topics()
        await self._bulk()
        mark = replace(mark, source=self._source.url, cluster_id=self._cluster_id, whole=False)
        await self._write_mark(mark)
        await copy_groups(self._transfer)
        cuts = {}
        for shard in await self._shards():
            cuts[shard] = await self._copied(shard).cut()
        await self._remove_dropped_topics(cuts)  # before the journal: the topics it calls live are complete then
        mark = replace(
            mark,
            wal_ends={shard: cut.wal_end for shard, cut in cuts.items()},
            manifest_ends={shard: cut.manifest_end for shard, cut in cuts.items()},
            journal_end=await self._copy_journal(),
            copied_at_ms=self._clock.now_ms(),
        )
        await self._write_mark(replace(mark, whole=self._transfer.report.whole))
        return self._transfer.report

    def _copied(self, shard: int) -> ShardCopy:
        return ShardCopy(self._transfer, self._topics, shard, self._runtime, self._grace_s)

    async def _earlier(self) -> CopyMark | None:
        """The mark of an earlier copy; None if the target is empty."""
        if self._source.url == self._target.url:
            raise Conflict("cannot copy a bucket to itself: name another target")
        try:
            mark = decode_copy_mark((await self._target.get(COPY_KEY)).data)
        except NotFound:
            if await self._target.list("", limit=1):
                raise Conflict(f"{self._target.url} holds other objects: use an empty bucket for the copy") from None
            return None
        if mark.cluster_id not in ("", self._cluster_id):
            raise Conflict(f"{self._target.url} is a copy of cluster {mark.cluster_id}, not of {self._cluster_id}")
        if mark.whole:
            await self._refuse_used(mark)
        return mark

    async def _refuse_used(self, mark: CopyMark) -> None:
        """Raise if a broker has appended to a log of the copy."""
        journal = ObjectLog(self._target, META_PREFIX, JOURNAL_SUFFIX)
        ends = [("journal", await journal.newest(mark.journal_end - 1) + 1, mark.journal_end)]
        for shard in await shards_in(self._target):
            logs = (
                ("shard", ObjectLog(self._target, wal_prefix(shard), wal_suffix()), mark.wal_ends),
                ("manifest of shard", ObjectLog(self._target, manifests_prefix(shard), ".json"), mark.manifest_ends),
            )
            for what, log, copied_ends in logs:
                end = copied_ends.get(shard, 0)
                ends.append((f"{what} {shard}", await log.newest(end - 1) + 1, end))
        for name, found, copied in ends:
            if found > copied:
                raise Conflict(
                    f"{self._target.url} has been written to since it was copied ({name} had {copied} entries, and has "
                    f"{found}): a broker runs on it. Use an empty bucket for the copy"
                )

    async def _write_mark(self, mark: CopyMark) -> None:
        await self._target.put(COPY_KEY, encode_copy_mark(mark))

    async def _name_unknown_topics(self) -> None:
        """Report topics that the journal does not know: no broker serves them. The journal has lost entries, which an
        operator must know."""
        topics = [topic async for topic in topics_in(self._source)]
        view = await journal_view(self._topics, {topic_id for _, topic_id in topics})
        for name, topic_id in topics:
            if view.is_unknown(topic_id):
                text = "is a topic that the journal does not know: no broker serves it"
                self._transfer.note_damage(error(topic_prefix(name, topic_id), text))

    async def _bulk(self) -> None:
        """Copy segments, in rounds, until a further round would leave the cuts about as much to do."""
        before: int | None = None
        for _ in range(ROUNDS_MAX):
            began_s, had = self._clock.monotonic(), self._transfer.report.copied_bytes
            for shard in await self._shards():
                await self._copied(shard).bulk()
            copied = self._transfer.report.copied_bytes - had
            if is_settled(self._clock.monotonic() - began_s, self._grace_s, copied, before):
                return
            before = copied

    async def _remove_dropped_topics(self, cuts: Mapping[int, Cut]) -> None:
        """Remove the segments of topics that have left their shard since an earlier copy."""
        async for page in list_segments(self._target):
            if isinstance(page, SegmentPage):
                cut = cuts.get(page.place.shard)
                if cut is None or page.place.topic_id not in cut.topic_ids:
                    await self._transfer.delete([info.key for info in page.infos])

    async def _shards(self) -> list[int]:
        of_topics = {shard for topic in (await live_topics(self._topics)).values() for shard in topic.shards}
        return sorted({*of_topics, *await shards_in(self._source)})

    async def _copy_journal(self) -> int:
        """Copy every entry; returns their number."""
        entries = await self._transfer.entries(META_PREFIX, JOURNAL_SUFFIX)
        await self._transfer.append(META_PREFIX, list(entries.values()), "journal")
        return len(entries)


def is_settled(took_s: float, grace_s: float, copied_bytes: int, copied_before: int | None) -> bool:
    """Whether a round of the bulk was the last: it was so quick that a cut will be quick too, or it copied nothing, or
    about as much as the round before, as the next round would."""
    quick = took_s < grace_s / 4
    shrinks = copied_before is None or copied_bytes <= copied_before / 2
    return quick or copied_bytes == 0 or not shrinks
