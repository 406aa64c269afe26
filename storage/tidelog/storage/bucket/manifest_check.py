"""Checks the manifest of one shard: its versions, their history and the lists that they name.

Each version that is stored must be readable, hash to its head and follow the one before it, and the history must reach
up to the first of them. A deep check replays the whole history from version 0 on (`manifest_replay`) and compares it
with the segments that the newest version lists.

Workers may append and collect at the same time: a collected version is then found in the history, and a list that the
newest version does not name may be garbage by now.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tidelog.storage.bucket.finding import (
    UNREADABLE,
    Finding,
    Looked,
    Report,
    Seen,
    Severity,
    error,
    stranger,
    unreadable,
)
from tidelog.storage.bucket.listing import is_there
from tidelog.storage.bucket.manifest_replay import OBJECTS_AT_ONCE, Chain, TopicReplay, steps_of
from tidelog.storage.bucket.shard_look import ShardLook
from tidelog.storage.errors import Conflict, Corrupt, NewerFormat, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import (
    history_versions,
    lists_prefix,
    manifests_prefix,
    number_of,
    shard_history_prefix,
    topic_id_of_list,
)
from tidelog.storage.manifests.shard_history import ShardHistory, block_fault
from tidelog.storage.manifests.shard_manifest import ShardManifest
from tidelog.storage.object_store import ObjectInfo, ObjectStore, list_all

Versions = tuple[int, int]
"""The first and the last version of a block."""


VERSIONS_AT_ONCE = 2
"""A version of a shard with a thousand topics takes a hundred MB while it is decoded."""


@dataclass(frozen=True, slots=True)
class _Link:
    """What is kept of a version that was read."""

    previous_head: str
    head: str


class ManifestCheck:
    """One run over the manifest that `look` reads."""

    def __init__(self, store: ObjectStore, look: ShardLook, report: Report) -> None:
        self._store = store
        self._look = look
        self._log = look.log
        self._history = ShardHistory(store, look.shard)
        self._report_to = report
        self._reported: set[str] = set()
        self._versions: list[int] = []
        self._blocks: list[Versions] = []
        self._lists: list[ObjectInfo] = []

    async def run(self, *, deep: bool) -> None:
        """Raises `Unavailable`."""
        await self._list()
        await self._look.refresh()
        if self._look.fault:
            await self._report(self._look.fault)
        await self._check_versions()
        await self._check_blocks(deep=deep)
        if deep:
            await self._replay()
        await self._check_lists()

    async def _report(self, seen: Seen) -> None:
        """Each object is named once: the later faults of a damaged object follow from the first."""
        if isinstance(seen, Finding):
            if seen.key in self._reported:
                return
            self._reported.add(seen.key)
        await self._report_to(seen)

    async def _list(self) -> None:
        shard = self._look.shard
        async for info in list_all(self._store, manifests_prefix(shard)):
            version = number_of(info.key, manifests_prefix(shard), ".json")
            block = history_versions(info.key, shard_history_prefix(shard))
            if version is not None:
                self._versions.append(version)
            elif block is not None:
                self._blocks.append(block)
            elif info.key.startswith(lists_prefix(shard)) and topic_id_of_list(info.key):
                self._lists.append(info)
                continue
            else:
                await self._report(stranger(info.key, info.size))
                continue
            await self._report(Looked(info.size))

    async def _check_versions(self) -> None:
        """Each version, and that it follows the one before it."""
        before: _Link | None = None
        number = -1
        async for version, found in in_order(self._versions, self._read, at_once=VERSIONS_AT_ONCE):
            if version > number + 1 and not await self._is_history(version - 1):
                await self._report(self._lost_versions(number + 1, version))
            if isinstance(found, UNREADABLE):
                await self._report(unreadable(found))
            elif found and before and version == number + 1 and found.previous_head != before.head:
                await self._report(error(self._log.key(version), "does not follow the version before it"))
            before, number = found if isinstance(found, _Link) else None, version

    async def _read(self, version: int) -> _Link | Corrupt | NewerFormat | None:
        try:
            found = await self._log.read(version)
            return _Link(found.previous_head, found.head)
        except UNREADABLE as fault:
            return fault
        except NotFound:  # collected meanwhile, or deleted
            return None if await self._is_history(version) else Corrupt(self._log.key(version), "was lost meanwhile")

    def _lost_versions(self, first: int, end: int) -> Finding:
        text = f"is missing, with all up to version {end - 1}, and no block of the history has it"
        return error(self._log.key(first), f"{text}: nobody can prove any more what they changed")

    async def _is_history(self, version: int) -> bool:
        known = any(first <= version <= last for first, last in self._blocks)
        return known or any(first <= version <= last for first, last in await self._history.blocks())

    async def _check_blocks(self, *, deep: bool) -> None:
        """The last block, or every one; that none overlaps another or reaches beyond the newest version; and that the
        first stored version follows from them."""
        for earlier, later in pairwise(self._blocks):
            if later[0] <= earlier[1]:
                text = f"holds versions from {later[0]} on, and the block before it those up to {earlier[1]}"
                await self._report(error(self._history.key(*later), text))
        heads: dict[int, str] = {}
        wanted = self._blocks if deep else self._blocks[-1:]
        async for versions, found in in_order(wanted, self._block_heads, at_once=OBJECTS_AT_ONCE):
            if isinstance(found, Finding):
                await self._report(found)
            else:
                heads |= found
                await self._check_stored(versions, found)
        await self._check_link(heads)
        await self._check_end()

    async def _block_heads(self, versions: Versions) -> dict[int, str] | Finding:
        key = self._history.key(*versions)
        try:
            block = await self._history.read(*versions)
        except UNREADABLE as fault:
            return unreadable(fault)
        except NotFound:
            return error(key, "was listed and is now missing")
        fault_text = block_fault(block)
        return error(key, fault_text) if fault_text else {step.version: step.head for step in block.steps[-1:]}

    async def _check_stored(self, versions: Versions, heads: dict[int, str]) -> None:
        """Compare a version that is both in the block and still stored with its last step."""
        for version, head in heads.items():
            if version in self._versions[-1:] or version not in set(self._versions):
                continue
            found = await self._read(version)
            if isinstance(found, _Link) and found.head != head:
                block = self._history.key(*versions)
                await self._report(error(self._log.key(version), f"differs from its step in {block}"))

    async def _check_link(self, heads: dict[int, str]) -> None:
        after = next((version for version in self._versions if version - 1 in heads), None)
        if after is None:
            return
        found = await self._read(after)
        if isinstance(found, _Link) and found.previous_head != heads[after - 1]:
            await self._report(error(self._log.key(after), "does not follow from the history before it"))

    async def _check_end(self) -> None:
        """Blocks are made of older versions only. Workers append and collect meanwhile, so the versions are listed
        again."""
        if not self._blocks:
            return
        last = self._blocks[-1][1]
        if last < max(self._versions, default=-1) or last < await self._newest_number():
            return
        text = f"holds versions up to {last}, and the newest manifest is older: the newest versions are lost (inv. 5)"
        await self._report(error(self._history.key(*self._blocks[-1]), text))

    async def _newest_number(self) -> int:
        return max([version async for version in self._log.versions()], default=-1)

    async def _replay(self) -> None:
        """The whole history, up to the version that was read."""
        newest = self._look.manifest
        if newest is None or newest.version < 0:
            return
        chain, topics = Chain(self._look.shard), defaultdict[str, TopicReplay](TopicReplay)
        try:
            async for key, step in steps_of(self._log, self._history, 0, newest.version):
                fault = chain.take(step)
                for topic_id, changed in step.recorded.topics.items():
                    fault = fault or topics[topic_id].take(step.version, step.recorded.kind, changed)
                if fault:
                    await self._report(error(key, fault))
                    return
        except UNREADABLE as damage:
            await self._report(unreadable(damage))
            return
        if chain.head != newest.head:
            await self._report(error(self._log.key(newest.version), "does not follow from its history"))
        await self._compare(newest, topics)

    async def _compare(self, newest: ShardManifest, topics: dict[str, TopicReplay]) -> None:
        """Compare the lists of the version that was read with its history; a list that was collected since is not."""
        for topic_id in sorted({*topics, *newest.topics}):
            try:
                state = (await self._log.with_lists(newest, [topic_id])).topics.get(topic_id)
            except (*UNREADABLE, Conflict):
                continue  # reported with the topic's segments; or collected
            if fault := topics[topic_id].end_fault(state):
                name = state.name if state else topic_id
                key = state.stored.key if state and state.stored else self._log.key(newest.version)
                await self._report(error(key, f"{fault}: the segments of {name} were altered"))

    async def _check_lists(self) -> None:
        """Lists that nothing names are orphans, unless they were written or collected meanwhile."""
        named, garbage = _lists_of(self._look.manifest)
        for info in self._lists:
            if info.key not in named | garbage and self._look.manifest:
                named, garbage = _lists_of(await self._look.refresh())
            waiting = info.key in garbage
            await self._report(Looked(info.size, waiting=waiting))
            unnamed = info.key not in named and not waiting and self._look.manifest is not None
            if unnamed and await is_there(self._store, info.key):
                text = "is a list of segments that no manifest names"
                await self._report(Finding(Severity.ORPHAN, info.key, text, info.size))


def _lists_of(manifest: ShardManifest | None) -> tuple[frozenset[str], frozenset[str]]:
    """The lists that a version names, and the objects that wait for their deletion."""
    if manifest is None:
        return frozenset(), frozenset()
    named = frozenset(topic.stored.key for topic in manifest.topics.values() if topic.stored)
    return named, frozenset(each.key for each in manifest.garbage)
