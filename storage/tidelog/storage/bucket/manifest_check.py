"""Checks the manifests of one partition: the newest can be read and its hash follows from what it changed; deep, the
whole history as well (`history_check`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidelog.storage.bucket.finding import Finding, Seen, Severity
from tidelog.storage.bucket.history_check import HistoryCheck
from tidelog.storage.errors import Corrupt, NotFound
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_chain import chain_fault
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.upkeep.task import Place


class ManifestCheck:
    """One run. `latest` is the newest manifest afterwards, None if it cannot be read."""

    def __init__(self, store: ObjectStore, topic: str, place: TopicPartition, *, deep: bool) -> None:
        self._log = ManifestLog(store, topic, place)
        self._history = HistoryCheck(store, Place(topic, place)) if deep else None
        self.latest: Manifest | None = None

    async def findings(self) -> AsyncIterator[Seen]:
        """What is wrong. Raises `Unavailable`."""
        fault = await self._newest()
        if fault:
            yield fault
        if self._history:
            async for finding in self._history.findings(None if fault else self.latest):
                yield finding

    async def _newest(self) -> Finding | None:
        try:
            self.latest = await self._log.latest()
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        except NotFound as error:
            return Finding(Severity.ERROR, self._log.key(0), f"cannot be read: {error}")
        fault = chain_fault(self.latest) if self.latest.version >= 0 else None
        return Finding(Severity.ERROR, self._log.key(self.latest.version), fault) if fault else None
