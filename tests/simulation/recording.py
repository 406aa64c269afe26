"""A writer and a manifest that report to `Truth`; their behaviour does not change."""

from __future__ import annotations

from tests.simulation.scheduler import Scheduler
from tests.simulation.truth import Truth

from tidelog.storage.errors import Contended
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.wal_entry import EntryKind
from tidelog.storage.wal.wal_writer import WalWriter

NOTED = {
    (State.RESOLVING, State.CHECKING_TRUST): "conflict with the own lost PUT",
    (State.RESOLVING, State.FENCED): "fenced by another's entry",
    (State.CHECKING_FLOOR, State.LEADING): "floor read: not below it",
    (State.CHECKING_FLOOR, State.FENCED): "fenced by the floor",
    (State.CHECKING_TRUST, State.LEADING): "floor not read: known lately",
    (State.RESOLVING, State.SEARCHING): "START lost its number",
    (State.CHECKING_FLOOR, State.SEARCHING): "START below the floor",
}


def recorded(writer_class: type[WalWriter], truth: Truth, scheduler: Scheduler) -> type[WalWriter]:
    """`writer_class` with its transitions counted, traced and checked."""

    class Recorded(writer_class):  # type: ignore[misc,valid-type]  # the class is handed in
        async def step(self) -> State:
            before, entry = self._state, self._pending
            after: State = await super().step()
            if (note := NOTED.get((before, after))) is not None:
                truth.seen[note] += 1
            if after is State.BACKING_OFF and isinstance(self.retries.last_error, Contended):
                truth.seen["409"] += 1
            if after is State.BACKING_OFF and before is State.PUTTING:
                truth.seen["PUT in doubt"] += 1
            if after is State.LEADING and entry is not None:
                truth.committed(entry.header)
                if entry.header.kind is EntryKind.START:
                    truth.seen["epoch begun"] += 1
            if scheduler.traced:
                scheduler.trace(f"{self._writer_id:<12} {before.value} -> {after.value} (next {self._next_seq})")
            return after

    return Recorded


def recorded_log(log_class: type[ShardLog], truth: Truth) -> type[ShardLog]:
    """`log_class`, of which each append is checked."""

    class RecordedLog(log_class):  # type: ignore[misc,valid-type]  # the class is handed in
        async def append(self, change: ManifestChange, before: ShardManifest | None = None) -> ShardManifest:
            made: ShardManifest = await super().append(change, before)
            truth.archive.appended(made)
            return made

    return RecordedLog
