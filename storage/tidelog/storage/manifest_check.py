"""Checks the manifests of one partition: the newest can be read and its hash follows from what it changed; deep, so can
every version that is kept, and each hash follows from the one before.

Safe beside workers: versions are collected meanwhile, and a version that vanishes is looked for no longer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.finding import Finding, Seen, Severity
from tidelog.storage.layout import TopicPartition, manifest_prefix
from tidelog.storage.manifest import Manifest
from tidelog.storage.manifest_chain import chain_fault
from tidelog.storage.manifest_log import ManifestLog
from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore


class ManifestCheck:
    """One run. `latest` is the newest manifest afterwards, None if it cannot be read."""

    def __init__(self, store: ObjectStore, topic: str, place: TopicPartition, *, deep: bool) -> None:
        self._store = store
        self._topic = topic
        self._place = place
        self._deep = deep
        self.latest: Manifest | None = None

    async def findings(self) -> AsyncIterator[Seen]:
        """What is wrong. Raises `Unavailable`."""
        try:
            self.latest = await self._newest()
        except (Corrupt, NotFound) as error:
            yield self._unreadable(error)
            return
        log = ManifestLog(self._store, self._topic, self._place)
        if self.latest.version >= 0 and (fault := chain_fault(self.latest)):
            yield Finding(Severity.ERROR, log.key(self.latest.version), fault)
        if self._deep:
            async for finding in self._history(log):
                yield finding

    async def _newest(self) -> Manifest:
        """Read twice if need be: what it rests on may have been collected between two requests."""
        try:
            return await ManifestLog(self._store, self._topic, self._place).latest()
        except (Corrupt, NotFound):
            return await ManifestLog(self._store, self._topic, self._place).latest()

    def _unreadable(self, error: Corrupt | NotFound) -> Finding:
        if isinstance(error, Corrupt):
            return Finding(Severity.ERROR, error.name, error.reason)
        key = ManifestLog(self._store, self._topic, self._place).key(0)
        return Finding(Severity.ERROR, key, f"cannot be read: {error}")

    async def _history(self, log: ManifestLog) -> AsyncIterator[Finding]:
        before: Manifest | None = None
        prefix = manifest_prefix(self._topic, self._place.topic_id, self._place.partition)
        async for version in ObjectLog(self._store, prefix, ".json").numbers():
            try:
                manifest = await log.read(version)
            except NotFound:
                continue  # collected meanwhile
            except Corrupt as error:
                yield Finding(Severity.ERROR, error.name, error.reason)
                before = None
                continue
            if fault := chain_fault(manifest):
                yield Finding(Severity.ERROR, log.key(version), fault)
            if before and before.version == version - 1 and before.head != manifest.previous_head:
                yield Finding(Severity.ERROR, log.key(version), "does not follow the version before it: another head")
            before = manifest
