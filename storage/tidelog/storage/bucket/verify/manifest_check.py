"""Checks the manifest of one shard: its versions, their history and the lists that they name.

The steps from the newest block of the history on must be readable and form one chain of hashes. A deep check replays
the whole history from version 0 on (`replay`) and compares it with the segments that the newest version lists. A
version that a block has, too, waits for its deletion, and is not read.

Workers may append and collect at the same time: a collected version is then found in the history, and a list that the
newest version does not name may be garbage by now. No name of an object is kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress
from itertools import pairwise

from tidelog.storage.bucket.finding import (
    UNREADABLE,
    Finding,
    Looked,
    Report,
    Severity,
    error,
    stranger,
    unreadable,
)
from tidelog.storage.bucket.listing import is_there
from tidelog.storage.bucket.replay import Replay, Versions, links
from tidelog.storage.bucket.shard_look import ShardLook
from tidelog.storage.errors import Conflict
from tidelog.storage.layout import (
    history_versions,
    lists_prefix,
    manifests_prefix,
    number_of,
    shard_history_prefix,
    topic_id_of_list,
)
from tidelog.storage.manifests.shard_history import ShardHistory
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all


class ManifestCheck:
    """One run over the manifest that `look` reads."""

    def __init__(self, store: ObjectStore, look: ShardLook, report: Report, *, deep: bool) -> None:
        self._store = store
        self._look = look
        self._log = look.log
        self._history = ShardHistory(store, look.shard)
        self._report = report
        self._deep = deep

    async def run(self) -> None:
        """Raises `Unavailable`."""
        await self._look.refresh()
        if self._look.fault:
            await self._report(self._look.fault)
        newest = await self._check_objects()
        try:
            blocks = await self._history.blocks()
            await self._check_blocks(blocks, newest)
            await self._check_chain(0 if self._deep or not blocks else blocks[-1][0], newest)
        except UNREADABLE as fault:  # too many blocks
            await self._report(unreadable(fault))

    async def _check_objects(self) -> int:
        """Check the name of every object, and every list; returns the number of the newest version."""
        shard, newest = self._look.shard, -1
        async for info in list_all(self._store, manifests_prefix(shard)):
            version = number_of(info.key, manifests_prefix(shard), ".json")
            if info.key.startswith(lists_prefix(shard)) and topic_id_of_list(info.key):
                await self._check_list(info)
            elif version is None and history_versions(info.key, shard_history_prefix(shard)) is None:
                await self._report(stranger(info.key, info.size))
            else:
                newest = newest if version is None else version
                await self._report(Looked(info.size))
        return newest

    async def _check_list(self, info: ObjectInfo) -> None:
        """A list that nothing names is an orphan, unless it was written or collected meanwhile."""
        look = self._look
        if look.manifest and info.key not in look.lists:
            await look.refresh()
        waiting = info.key in look.garbage
        await self._report(Looked(info.size, waiting=waiting))
        unnamed = look.manifest and not waiting and info.key not in look.lists
        if unnamed and await is_there(self._store, info.key):
            text = "is a list of segments that no manifest names"
            await self._report(Finding(Severity.ORPHAN, info.key, text, info.size))

    async def _check_blocks(self, blocks: Sequence[Versions], newest: int) -> None:
        """No block overlaps another, and none reaches up to the newest version: blocks are made of older versions only.
        Workers append and collect meanwhile, so that version is looked for again."""
        for earlier, later in pairwise(blocks):
            if later[0] <= earlier[1]:
                text = f"holds versions from {later[0]} on, and the block before it those up to {earlier[1]}"
                await self._report(error(self._history.key(*later), text))
        last = blocks[-1][1] if blocks else -1
        if blocks and newest <= last and await self._newest_after(last) == last:
            text = f"holds versions up to {last}, and the newest manifest is older: the newest versions are lost"
            await self._report(error(self._history.key(*blocks[-1]), f"{text} (inv. 5)"))

    async def _newest_after(self, known: int) -> int:
        return await ObjectLog(self._store, manifests_prefix(self._look.shard), ".json").newest(known)

    async def _check_chain(self, first: int, newest: int) -> None:
        """The steps from version `first` on; of a deep check, also what they lead to."""
        manifest, damaged = self._look.manifest, self._look.fault and self._look.fault.key
        replay = Replay(self._look.shard, wanted=None if self._deep else (), is_begun=first > 0)
        last = manifest.version if manifest else newest
        async with aclosing(links(self._log, self._history, first, last)) as steps:
            async for found in steps:
                fault = replay.take(found)
                if fault and fault.key != damaged:
                    await self._report(fault)
        if self._deep and manifest and replay.is_whole:
            await self._check_topics(replay, manifest)

    async def _check_topics(self, replay: Replay, newest: ShardManifest) -> None:
        """Compare the lists of the version that was read with its history; a list that was collected since is not."""
        if text := replay.end_fault(newest):
            await self._report(error(self._log.key(max(newest.version, 0)), text))
        for topic_id in sorted({*replay.topics, *newest.topics}):
            with suppress(*UNREADABLE, Conflict):  # reported with the topic's segments; or collected
                if fault := await replay.topic_fault(self._log, newest, topic_id):
                    await self._report(fault)
