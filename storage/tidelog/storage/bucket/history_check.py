"""Checks the history of one partition, block by block and as a whole: what `verify --deep` adds to a look at the newest
manifest.

The steps are gone through from the first version on, through the blocks of versions that were collected and then the
versions that are there, as `attest` does, up to the segments that are listed now. That ends at the first fault, since
what comes after it cannot be judged; so then each block is looked at by itself, and every one that is damaged is named.
Else versions that are history and still there are held against it.

Safe beside workers: versions are collected meanwhile, and are found in the history then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from tidelog.storage.bucket.attest import OBJECTS_AT_ONCE, steps_up_to
from tidelog.storage.bucket.finding import Finding, Severity
from tidelog.storage.bucket.manifest_replay import Replay
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import history_prefix, history_versions
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import Step, chain_fault, step_of
from tidelog.storage.manifests.manifest_codec import told_by
from tidelog.storage.manifests.manifest_history import ManifestHistory, block_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.upkeep.task import Place

Versions = tuple[int, int]
"""The first and the last of a block."""


class HistoryCheck:
    """One run."""

    def __init__(self, store: ObjectStore, place: Place) -> None:
        where = place.topic_partition
        self._store = store
        self._place = place
        self._prefix = history_prefix(place.topic, where.topic_id, where.partition)
        self._history = ManifestHistory(store, place.topic, where)
        self._log = ManifestLog(store, place.topic, where)
        self._blocks: list[Versions] = []

    async def findings(self, newest: Manifest | None) -> AsyncIterator[Finding]:
        """What is wrong. `newest` None: there is no manifest that could be read, so only blocks are looked at. Raises
        `Unavailable`."""
        async for finding in self._strangers():
            yield finding
        for finding in self._overlaps():
            yield finding
        fault = await self._replayed(newest) if newest and newest.version >= 0 else None
        if fault:
            yield fault
        if fault or newest is None or newest.version < 0:
            async for finding in self._each_block(fault.key if fault else ""):
                yield finding
        else:
            async for finding in self._left_behind():
                yield finding
        if newest and (beyond := await self._beyond(newest)):
            yield beyond

    async def _strangers(self) -> AsyncIterator[Finding]:
        """Whatever lies among the blocks; and which blocks there are."""
        async for info in list_all(self._store, self._prefix):
            if versions := history_versions(info.key, self._prefix):
                self._blocks.append(versions)
            else:
                yield Finding(Severity.WARNING, info.key, "is none of Tidelog's objects", info.size)

    def _overlaps(self) -> Sequence[Finding]:
        return [
            self._error(later, f"holds versions from {later[0]} on, and the block before it those up to {earlier[1]}")
            for earlier, later in pairwise(self._blocks)
            if later[0] <= earlier[1]
        ]

    async def _replayed(self, newest: Manifest) -> Finding | None:
        """The first thing that is wrong with the history."""
        replay = Replay(self._place.topic_partition)
        try:
            async for step in steps_up_to(self._store, self._place, newest.version):
                if fault := replay.take(step):
                    return Finding(Severity.ERROR, self._key_of(step.version), fault)
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        except NotFound as error:
            return Finding(Severity.ERROR, self._prefix, f"a block of it is gone: {error}")
        if fault := replay.end_fault(newest):
            return Finding(Severity.ERROR, self._log.key(newest.version), fault)
        return None

    async def _each_block(self, told: str) -> AsyncIterator[Finding]:
        """Each that is damaged, but for that with the key `told`."""
        async for versions, fault in in_order(self._blocks, self._block_fault, at_once=OBJECTS_AT_ONCE):
            if fault and self._history.key(*versions) != told:
                yield self._error(versions, fault)

    async def _block_fault(self, versions: Versions) -> str | None:
        try:
            return block_fault(await self._history.read(*versions))
        except Corrupt as error:
            return error.reason
        except NotFound:
            return "was listed and is gone"

    async def _left_behind(self) -> AsyncIterator[Finding]:
        """About versions that are history by now and are there still: because they are the base of others, or not
        collected yet."""
        there = [version async for version in self._log.versions() if self._block_of(version)]
        for versions in self._blocks:
            if numbers := [version for version in there if versions[0] <= version <= versions[1]]:
                for step in await self._steps(versions):
                    if step.version in numbers and (fault := await self._version_fault(step)):
                        yield Finding(Severity.ERROR, self._log.key(step.version), fault)

    async def _steps(self, versions: Versions) -> Sequence[Step]:
        """Those of a block that was sound a moment ago; none if its topic was deleted since."""
        try:
            return (await self._history.read(*versions)).steps
        except NotFound:
            return ()

    async def _version_fault(self, step: Step) -> str | None:
        try:
            manifest = told_by(await self._log.stored(step.version))
        except NotFound:
            return None  # collected meanwhile
        except Corrupt as error:
            return error.reason
        fault = chain_fault(manifest)
        return fault or (None if step_of(manifest) == step else "is not what the history says of it")

    async def _beyond(self, newest: Manifest) -> Finding | None:
        """A block is made of versions that are older than the newest, which stays."""
        if not self._blocks:
            return None
        last = self._blocks[-1]
        if last[1] < newest.version or last[1] < await self._newest_version():
            return None
        text = f"holds versions up to {last[1]}, and the newest manifest is {newest.version}: later ones are lost"
        return self._error(last, text)

    async def _newest_version(self) -> int:
        """As of now: workers append and collect meanwhile."""
        versions = [version async for version in self._log.versions()]
        return max(versions, default=-1)

    def _key_of(self, version: int) -> str:
        """Where a step was read."""
        block = self._block_of(version)
        return self._history.key(*block) if block else self._log.key(version)

    def _block_of(self, version: int) -> Versions | None:
        return next((block for block in self._blocks if block[0] <= version <= block[1]), None)

    def _error(self, versions: Versions, text: str) -> Finding:
        return Finding(Severity.ERROR, self._history.key(*versions), text)
