"""Checks the manifests of one partition: the newest version can be read and matches its hash. Deep: the whole history.

A deep check replays the history from version 0 on (`manifest_replay`). The replay stops at the first fault, because
later steps cannot be judged after it. In that case each history block is checked alone, so that every damaged block is
named. If the replay is sound, versions that are both in a block and still stored are compared.

Workers may collect versions at the same time: a collected version is then found in the history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from tidelog.storage.bucket.finding import Finding, Severity, stranger
from tidelog.storage.bucket.manifest_replay import OBJECTS_AT_ONCE, replay_fault
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
"""The first and the last version of a block."""


class ManifestCheck:
    """One run. Afterwards `latest` is the newest manifest, or None if it cannot be read."""

    def __init__(self, store: ObjectStore, place: Place, *, deep: bool) -> None:
        self._log = ManifestLog(store, place.topic, place.topic_partition)
        self._history = HistoryCheck(store, place) if deep else None
        self.latest: Manifest | None = None

    async def findings(self) -> AsyncIterator[Finding]:
        """Each fault. Raises `Unavailable`."""
        fault = await self._newest_fault()
        if fault:
            yield fault
        if self._history:
            async for finding in self._history.findings(None if fault else self.latest):
                yield finding

    async def _newest_fault(self) -> Finding | None:
        try:
            self.latest = await self._log.latest()
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        except NotFound as error:
            return Finding(Severity.ERROR, self._log.key(0), f"cannot be read: {error}")
        fault = chain_fault(self.latest) if self.latest.version >= 0 else None
        return Finding(Severity.ERROR, self._log.key(self.latest.version), fault) if fault else None


class HistoryCheck:
    """One run over the history of one partition."""

    def __init__(self, store: ObjectStore, place: Place) -> None:
        where = place.topic_partition
        self._store = store
        self._place = place
        self._prefix = history_prefix(place.topic, where.topic_id, where.partition)
        self._history = ManifestHistory(store, place.topic, where)
        self._log = ManifestLog(store, place.topic, where)
        self._blocks: list[Versions] = []

    async def findings(self, newest: Manifest | None) -> AsyncIterator[Finding]:
        """Each fault. If `newest` is None, no manifest can be read, and only the blocks are checked. Raises
        `Unavailable`."""
        async for finding in self._list_blocks():
            yield finding
        for finding in self._overlaps():
            yield finding
        fault = await self._replay_fault(newest) if newest and newest.version >= 0 else None
        if fault:
            yield fault
        if fault or newest is None or newest.version < 0:
            async for finding in self._damaged_blocks(fault.key if fault else ""):
                yield finding
        else:
            async for finding in self._contradicted_versions():
                yield finding
        if newest and (beyond := await self._beyond(newest)):
            yield beyond

    async def _list_blocks(self) -> AsyncIterator[Finding]:
        """Fill `_blocks`; a finding for each other object beside them."""
        async for info in list_all(self._store, self._prefix):
            if versions := history_versions(info.key, self._prefix):
                self._blocks.append(versions)
            else:
                yield stranger(info.key, info.size)

    def _overlaps(self) -> Sequence[Finding]:
        return [
            self._error(later, f"holds versions from {later[0]} on, and the block before it those up to {earlier[1]}")
            for earlier, later in pairwise(self._blocks)
            if later[0] <= earlier[1]
        ]

    async def _replay_fault(self, newest: Manifest) -> Finding | None:
        try:
            fault = await replay_fault(self._store, self._place, newest)
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        except NotFound as error:
            return Finding(Severity.ERROR, self._prefix, f"lacks a block: {error}")
        return Finding(Severity.ERROR, self._key_of(fault.version), fault.text) if fault else None

    async def _damaged_blocks(self, named: str) -> AsyncIterator[Finding]:
        """Every damaged block except `named`."""
        async for versions, fault in in_order(self._blocks, self._block_fault, at_once=OBJECTS_AT_ONCE):
            if fault and self._history.key(*versions) != named:
                yield self._error(versions, fault)

    async def _block_fault(self, versions: Versions) -> str | None:
        try:
            return block_fault(await self._history.read(*versions))
        except Corrupt as error:
            return error.reason
        except NotFound:
            return "was listed and is now missing"

    async def _contradicted_versions(self) -> AsyncIterator[Finding]:
        """Versions that are in a block, still stored (as a base of others, or not collected yet), and different."""
        stored = [version async for version in self._log.versions() if self._block_of(version)]
        for versions in self._blocks:
            if numbers := [version for version in stored if versions[0] <= version <= versions[1]]:
                for step in await self._steps(versions):
                    if step.version in numbers and (fault := await self._version_fault(step)):
                        yield Finding(Severity.ERROR, self._log.key(step.version), fault)

    async def _steps(self, versions: Versions) -> Sequence[Step]:
        """The steps of a block that was sound a moment ago; none if its topic was deleted since."""
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
        return fault or (None if step_of(manifest) == step else "differs from its step in the history")

    async def _beyond(self, newest: Manifest) -> Finding | None:
        """The finding if a block holds the newest version or a later one: blocks are made of older versions only."""
        if not self._blocks:
            return None
        last = self._blocks[-1]
        if last[1] < newest.version or last[1] < await self._newest_version():
            return None
        text = f"holds versions up to {last[1]}, and the newest manifest is {newest.version}: later ones are lost"
        return self._error(last, text)

    async def _newest_version(self) -> int:
        """Read again, because workers append and collect meanwhile."""
        return max([version async for version in self._log.versions()], default=-1)

    def _key_of(self, version: int) -> str:
        """The object that holds a step."""
        block = self._block_of(version)
        return self._history.key(*block) if block else self._log.key(version)

    def _block_of(self, version: int) -> Versions | None:
        return next((block for block in self._blocks if block[0] <= version <= block[1]), None)

    def _error(self, versions: Versions, text: str) -> Finding:
        return Finding(Severity.ERROR, self._history.key(*versions), text)
