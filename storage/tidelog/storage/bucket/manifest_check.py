"""Checks the manifests of one partition: the newest version can be read and matches its hash. Deep: the whole history.

A deep check replays the history from version 0 on (`manifest_replay`). The replay stops at the first fault, because
later steps cannot be judged after it. In that case each history block is checked alone, so that every damaged block is
named. If the replay is sound, versions that are both in a block and still stored are compared.

Workers may collect versions at the same time: a collected version is then found in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tidelog.storage.bucket.finding import Finding, Report, corrupt, error, stranger
from tidelog.storage.bucket.manifest_replay import OBJECTS_AT_ONCE, replay_history
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.in_flight import in_order
from tidelog.storage.layout import history_prefix, history_versions
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import Step, chain_fault, step_of
from tidelog.storage.manifests.manifest_codec import stored_part
from tidelog.storage.manifests.manifest_history import ManifestHistory, block_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.upkeep.task import Place

Versions = tuple[int, int]
"""The first and the last version of a block."""


async def check_manifests(store: ObjectStore, place: Place, report: Report, *, deep: bool) -> Manifest | None:
    """Returns the newest manifest, or None if it cannot be read. Raises `Unavailable`."""
    log = ManifestLog(store, place.topic, place.topic_partition)
    newest: Manifest | None = None
    finding: Finding | None = None
    try:
        newest = await log.latest()
        if newest.version >= 0 and (fault := chain_fault(newest)):
            finding = error(log.key(newest.version), fault)
    except Corrupt as corruption:
        finding = corrupt(corruption)
    except NotFound as missing:
        finding = error(log.key(0), f"cannot be read: {missing}")
    if finding:
        await report(finding)
    if deep:
        await HistoryCheck(store, place, report).run(None if finding else newest)
    return newest


class HistoryCheck:
    """One run over the history of one partition."""

    def __init__(self, store: ObjectStore, place: Place, report: Report) -> None:
        where = place.topic_partition
        self._store = store
        self._report = report
        self._place = place
        self._prefix = history_prefix(place.topic, where.topic_id, where.partition)
        self._history = ManifestHistory(store, place.topic, where)
        self._log = ManifestLog(store, place.topic, where)
        self._blocks: list[Versions] = []

    async def run(self, newest: Manifest | None) -> None:
        """Check the history. If `newest` is None, no manifest can be read, and only the blocks are checked. Raises
        `Unavailable`."""
        await self._list_blocks()
        finding = await self._replay_finding(newest) if newest and newest.version >= 0 else None
        if finding:
            await self._report(finding)
        if finding or newest is None or newest.version < 0:
            await self._check_each_block(finding.key if finding else "")
        else:
            await self._check_stored_versions()
        if newest:
            await self._check_end(newest)

    async def _list_blocks(self) -> None:
        """Fill `_blocks`, and report overlaps and other objects beside them."""
        async for info in list_all(self._store, self._prefix):
            if versions := history_versions(info.key, self._prefix):
                self._blocks.append(versions)
            else:
                await self._report(stranger(info.key, info.size))
        for earlier, later in pairwise(self._blocks):
            if later[0] <= earlier[1]:
                text = f"holds versions from {later[0]} on, and the block before it those up to {earlier[1]}"
                await self._report(error(self._history.key(*later), text))

    async def _replay_finding(self, newest: Manifest) -> Finding | None:
        try:
            await replay_history(self._store, self._place, newest)
        except Corrupt as corruption:
            return corrupt(corruption)
        except NotFound as missing:
            return error(self._prefix, f"lacks a block: {missing}")
        return None

    async def _check_each_block(self, reported: str) -> None:
        """Report every damaged block except `reported`."""
        async for versions, fault in in_order(self._blocks, self._block_fault, at_once=OBJECTS_AT_ONCE):
            if fault and self._history.key(*versions) != reported:
                await self._report(error(self._history.key(*versions), fault))

    async def _block_fault(self, versions: Versions) -> str | None:
        try:
            return block_fault(await self._history.read(*versions))
        except Corrupt as corruption:
            return corruption.reason
        except NotFound:
            return "was listed and is now missing"

    async def _check_stored_versions(self) -> None:
        """Compare versions that are both in a block and still stored, as a base of others or not collected yet."""
        stored = [version async for version in self._log.versions()]
        for versions in self._blocks:
            if numbers := [version for version in stored if versions[0] <= version <= versions[1]]:
                for step in await self._steps(versions):
                    if step.version in numbers and (fault := await self._version_fault(step)):
                        await self._report(error(self._log.key(step.version), fault))

    async def _steps(self, versions: Versions) -> Sequence[Step]:
        """The steps of a block that was sound a moment ago; none if its topic was deleted since."""
        try:
            return (await self._history.read(*versions)).steps
        except NotFound:
            return ()

    async def _version_fault(self, step: Step) -> str | None:
        try:
            manifest = stored_part(await self._log.stored(step.version))
        except NotFound:
            return None  # collected meanwhile
        except Corrupt as corruption:
            return corruption.reason
        fault = chain_fault(manifest)
        return fault or (None if step_of(manifest) == step else "differs from its step in the history")

    async def _check_end(self, newest: Manifest) -> None:
        """Report a block that holds the newest version or a later one: blocks are made of older versions only. Workers
        append and collect meanwhile, so the versions are listed again."""
        if not self._blocks:
            return
        last = self._blocks[-1][1]
        if last < newest.version or last < max([version async for version in self._log.versions()], default=-1):
            return
        text = f"holds versions up to {last}, and the newest manifest is {newest.version}: later ones are lost"
        await self._report(error(self._history.key(*self._blocks[-1]), text))
