"""Checks the manifests of one partition: the newest can be read and its hash follows from what it changed; deep, the
whole history is gone through from the first version on, as `attest` does, up to the segments that are listed now.

Safe beside workers: versions are collected meanwhile, and are found in the history then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidelog.storage.bucket.attest import steps_up_to
from tidelog.storage.bucket.finding import Finding, Seen, Severity
from tidelog.storage.bucket.manifest_replay import Replay
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
        self._store = store
        self._place = Place(topic, place)
        self._deep = deep
        self._log = ManifestLog(store, topic, place)
        self.latest: Manifest | None = None

    async def findings(self) -> AsyncIterator[Seen]:
        """What is wrong. Raises `Unavailable`."""
        try:
            self.latest = await self._log.latest()
        except Corrupt as error:
            yield Finding(Severity.ERROR, error.name, error.reason)
            return
        except NotFound as error:
            yield Finding(Severity.ERROR, self._log.key(0), f"cannot be read: {error}")
            return
        if self.latest.version < 0:
            return
        if fault := chain_fault(self.latest):
            yield Finding(Severity.ERROR, self._log.key(self.latest.version), fault)
        elif self._deep and (finding := await self._history_finding(self.latest)):
            yield finding

    async def _history_finding(self, newest: Manifest) -> Finding | None:
        """The first thing that is wrong with the history; what comes after it cannot be judged."""
        replay = Replay(self._place.topic_partition)
        try:
            async for step in steps_up_to(self._store, self._place, newest.version):
                if fault := replay.take(step):
                    return Finding(Severity.ERROR, self._log.key(step.version), fault)
        except Corrupt as error:
            return Finding(Severity.ERROR, error.name, error.reason)
        if fault := replay.end_fault(newest):
            return Finding(Severity.ERROR, self._log.key(newest.version), fault)
        return None
