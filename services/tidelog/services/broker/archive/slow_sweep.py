"""Sweeps a whole bucket slowly: a few requests per second, one at a time.

    sweep = SlowSweep(store, runtime, sweep_settings(delete_grace_ms))
    await sweep.run()                        # once through the bucket; may be cancelled anywhere
    sweep.counts.deleted                     # by reason, since the process started

A sweep that finds nothing to delete only reads: a LIST per thousand objects, a LIST and a GET of each shard's manifest,
and a GET of the list of each topic in a shard. So an idle cluster makes no PUT.
"""

from __future__ import annotations

import logging
from contextlib import aclosing

from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.telemetry.measurements import SweepCounts
from tidelog.storage.bucket.sweep.bucket_sweep import DAY_MS, UNFINISHED_UPLOADS, BucketSweep, SweepSettings
from tidelog.storage.bucket.sweep.sweep_report import SweepReport
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.rationing import PacedObjectStore

REQUESTS_PER_S = 5.0
"""A page of a listing takes some milliseconds of a processor, so this pace uses a fiftieth of one. A million
segments take five minutes."""
PLACES_LOGGED_MAX = 10
"""Places that the log names among those left alone. `tidelog bucket sweep` names all."""

_log = logging.getLogger(__name__)


def sweep_settings(delete_grace_ms: int) -> SweepSettings:
    """Settings for a bucket whose workers delete objects `delete_grace_ms` after their last use. The grace of a sweep
    is never shorter."""
    return SweepSettings(max(DAY_MS, delete_grace_ms), delete=True, pages_at_once=1)


class SlowSweep:
    """Sweeps `store`. `counts` grow with every deleted object."""

    def __init__(
        self, store: ObjectStore, runtime: Runtime, settings: SweepSettings, *, requests_per_s: float = REQUESTS_PER_S
    ) -> None:
        self._store = PacedObjectStore(store, runtime, requests_per_s)
        self._topics = JournalTopics(self._store, runtime)
        self._runtime = runtime
        self._settings = settings
        self._said_uploads = False
        self.counts = SweepCounts()

    async def run(self) -> None:
        """Sweep once through the bucket. Raises `Unavailable`, `Denied` and `Corrupt` of the journal. Objects that were
        deleted before an error are counted, and it is always safe to run again."""
        sweep = BucketSweep(self._store, self._topics, self._runtime, self._settings)
        finished = False
        try:
            async with aclosing(sweep.strays()) as strays:
                async for stray in strays:
                    self.counts = self.counts.with_deleted(stray)
            finished = True
        finally:
            self.counts = self.counts.with_end(sweep.report, finished=finished)
            _log_end(sweep.report, finished=finished)
            self._warn_of_uploads(sweep.report.unjudged.get(UNFINISHED_UPLOADS))

    def _warn_of_uploads(self, reason: str | None) -> None:
        """Warn once per process; the reason is the same every day."""
        if reason is None or self._said_uploads:
            return
        self._said_uploads = True
        _log.warning(
            "the sweep skips unfinished multipart uploads: %s. On S3 grant s3:ListBucketMultipartUploads, "
            "s3:ListMultipartUploadParts and s3:AbortMultipartUpload, or remove them by a lifecycle rule",
            reason,
        )


def _log_end(report: SweepReport, *, finished: bool) -> None:
    """Log one line about a sweep."""
    fields = {
        "deleted": report.deleted,
        "deleted_bytes": report.deleted_bytes,
        **report.found,
        "too_young": report.young,
        "left_alone": sorted(report.unjudged)[:PLACES_LOGGED_MAX],
    }
    _log.info("swept the bucket" if finished else "a sweep of the bucket was cut off", extra={"fields": fields})
