"""What really happened, seen from inside the bucket, and invariants 1 to 6 as code.

`Truth` sees each effect on the bucket at the moment it happens (`network.Witnessed`), and every acknowledgement and
read. Nothing else changes the state of the system, so checking each of these checks every step, and each check costs
only what the event touched. `archive_truth` has the checks of the archive. `verify_bucket` computes the log once more
from the objects alone.

The valid log is every entry created at the tail, in order; some entries are archived and deleted. An entry created
below the floor is not in the log (ARCHITECTURE.md, "The commit protocol").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tests.simulation.archive_truth import ArchiveTruth, LoggedRecord
from tests.simulation.batches import Batch, Placed, placed_in
from tests.simulation.violation import SHARD, Rules

from tidelog.storage.layout import manifests_prefix, number_of, wal_prefix, wal_suffix
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_entry import WalCodec, WalHeader


class Truth:
    """The observer that sees everything. `now_ms` is true time."""

    def __init__(self, codec: WalCodec, grace_ms: int, now_ms: Callable[[], int]) -> None:
        self.rules = Rules()
        self.log: list[WalHeader] = []
        self.floor = 0
        self.batches: dict[Batch, Placed] = {}
        self.seen: Counter[str] = Counter()
        self._codec = codec
        self._grace_ms = grace_ms
        self._now_ms = now_ms
        self._passed_ms: list[int] = []
        self._objects: dict[int, WalHeader] = {}
        self._ids: set[str] = set()
        self._refused: set[str] = set()
        self._partitions: dict[int, list[LoggedRecord]] = {}
        self._acknowledged_ends: dict[int, int] = {}
        self.archive = ArchiveTruth(self.rules, self._partitions, self.seen, grace_ms, now_ms)

    # ---- effects on the bucket

    def created(self, key: str, data: bytes) -> None:
        """A create succeeded."""
        if (seq := number_of(key, wal_prefix(SHARD), wal_suffix())) is not None:
            self._entry_created(seq, self._codec.decode_header(key, data))
        elif (version := number_of(key, manifests_prefix(SHARD), ".json")) is not None:
            floor = self.archive.version_created(version, key, data)
            if floor is not None and floor.number != self.floor:
                self._floor_moved(floor)
        else:
            self.archive.object_written(key, data)

    def put(self, key: str, data: bytes) -> None:
        """A put took effect, perhaps on an object that existed."""
        if (seq := number_of(key, wal_prefix(SHARD), wal_suffix())) is not None:
            self.rules.require(seq not in self._objects, "inv. 2", f"{key} was overwritten")
        else:
            self.archive.check_put(key, data)
        self.created(key, data)

    def deleted(self, key: str) -> None:
        """A delete took effect."""
        seq = number_of(key, wal_prefix(SHARD), wal_suffix())
        if seq is None:
            self.archive.deleted(key)
            return
        header = self._objects.pop(seq, None)
        if header is None:
            return
        require = self.rules.require
        require(header.seq < self.floor, "inv. 6", f"entry {seq} was deleted, the floor is {self.floor}")
        if header.entry_id == self.log[header.seq].entry_id:
            waited_ms = self._now_ms() - self._passed_ms[header.seq]
            require(waited_ms >= self._grace_ms, "inv. 6", f"entry {seq} was deleted after {waited_ms} ms")
            kept = all(self._is_archived(placed) for placed in placed_in(header))
            require(kept, "inv. 6", f"entry {seq} was deleted and is not archived")

    def _entry_created(self, seq: int, header: WalHeader) -> None:
        require = self.rules.require
        require(seq not in self._objects, "inv. 2", f"entry {seq} was created twice")
        self._objects[seq] = header
        if seq < self.floor:
            self.seen["number made anew"] += 1
            return
        require(seq == len(self.log), "inv. 5", f"entry {seq} was created, the tail is {len(self.log)}")
        require(header.entry_id not in self._refused, "inv. 10", f"entry {seq} was refused and is in the log")
        before = self.log[-1].epoch if self.log else 0
        require(header.epoch >= before, "inv. 3", f"entry {seq} has epoch {header.epoch} after {before}")
        self.log.append(header)
        self._ids.add(header.entry_id)
        for placed in placed_in(header):
            self._append(placed, header.epoch)

    def _append(self, placed: Placed, epoch: int) -> None:
        batch = placed.batch
        records = self._partitions.setdefault(batch.partition, [])
        self.rules.require(placed.base_offset == len(records), "inv. 4", f"{placed} comes at offset {len(records)}")
        self.rules.require(batch not in self.batches, "inv. 7", f"{batch} is in the log twice")
        self.batches[batch] = placed
        records.extend([LoggedRecord(batch, epoch)] * batch.count)

    def _floor_moved(self, floor: Floor) -> None:
        number, epoch, require = floor.number, floor.epoch, self.rules.require
        require(number > self.floor, "inv. 6", f"the floor went from {self.floor} to {number}")
        require(number <= len(self.log), "inv. 5", f"the floor is {number}, the tail {len(self.log)}")
        require(epoch == self.log[number - 1].epoch, "inv. 3", f"the floor's epoch is {epoch}")
        for header in self.log[self.floor : number]:
            archived = all(self._is_archived(placed) for placed in placed_in(header))
            require(archived, "inv. 5", f"the floor passed entry {header.seq}, which is not archived")
            self._passed_ms.append(self._now_ms())
        self.floor = number

    def _is_archived(self, placed: Placed) -> bool:
        return placed.next_offset <= self.archive.cold_end(placed.batch.partition)

    # ---- what was told to somebody

    def acknowledged(self, batch: Batch, header: WalHeader | None) -> None:
        """A producer got the answer that `batch` is in the log, in entry `header`, or (None) from an earlier
        attempt."""
        require = self.rules.require
        require(batch in self.batches, "inv. 1", f"{batch} was acknowledged and is not in the log")
        end = self._acknowledged_ends.get(batch.partition, 0)
        self._acknowledged_ends[batch.partition] = max(end, self.batches[batch].next_offset)
        if header is not None:
            self.committed(header)
            require(self.batches[batch] in placed_in(header), "inv. 1", f"{batch} is not where it was acknowledged")

    def committed(self, header: WalHeader) -> None:
        """A writer believes that its entry `header` is in the log."""
        in_log = header.seq < len(self.log) and self.log[header.seq].entry_id == header.entry_id
        what = f"entry {header.seq} {header.entry_id[:8]} was taken for committed and is not in the log"
        self.rules.require(in_log, "inv. 1", what)

    def refused(self, header: WalHeader) -> None:
        """A producer got the answer that an entry is *not* in the log and never will be."""
        self._refused.add(header.entry_id)
        in_log = header.entry_id in self._ids
        self.rules.require(not in_log, "inv. 10", f"entry {header.seq} was refused and is in the log")

    def was_read(self, partition: int, offset: int, value: bytes) -> None:
        """A reader got a record with `value` at `offset`."""
        records, require = self._partitions.get(partition, []), self.rules.require
        require(offset < len(records), "inv. 1", f"offset {offset} of {partition} was read and is not in the log")
        expected = records[offset].batch.value
        require(expected == value, "inv. 5", f"{value!r} was read at {offset}, where {expected!r} is")

    def was_skipped(self, partition: int, first: int, end: int) -> None:
        """A reader was told that the records ``[first, end)`` are not in the log any more."""
        start = self.archive.log_start(partition)
        self.rules.require(end <= start, "inv. 5", f"records {first} to {end - 1} of {partition} were not read")

    def acknowledged_ends(self) -> Mapping[int, int]:
        """The offset after the last acknowledged record of each partition."""
        return dict(self._acknowledged_ends)

    def ends_told(self, ends: Mapping[int, int], acknowledged_before: Mapping[int, int]) -> None:
        """A leader answered a read at the end with `ends`; when that read began, `acknowledged_before` held."""
        self.seen["ends told"] += 1
        for partition, acknowledged in acknowledged_before.items():
            told = ends.get(partition, 0)
            what = f"{told} was told for the end of {partition}, {acknowledged} is"
            self.rules.require(told >= acknowledged, "linearizable", what)
            known = told <= self.end_offset(partition)
            self.rules.require(known, "inv. 1", f"the end of {partition} is not {told} yet")

    def end_offset(self, partition: int) -> int:
        """The next offset of `partition`."""
        return len(self._partitions.get(partition, []))

    # ---- once more, from nothing

    def verify_bucket(self, objects: Mapping[str, bytes]) -> None:
        """The newest manifest and the contiguous entries from its floor on, read from the objects, are the log (inv.
        5)."""
        floor, cold_ends = self.archive.verify_bucket(objects)
        seq, require = floor, self.rules.require
        while (data := objects.get(_wal_key(seq))) is not None:
            header = self._codec.decode_header(_wal_key(seq), data)
            require(header == self.log[seq], "inv. 2", f"entry {seq} is not what was written")
            for placed in placed_in(header):
                if placed.base_offset == cold_ends[placed.batch.partition]:
                    cold_ends[placed.batch.partition] = placed.next_offset
            seq += 1
        require(seq == len(self.log), "inv. 5", f"the log ends at {len(self.log)}, the bucket's at {seq}")
        ends = {partition: len(records) for partition, records in self._partitions.items()}
        lacking = {partition: end for partition, end in ends.items() if cold_ends[partition] != end}
        require(not lacking, "inv. 5", f"the bucket lacks the last records before {lacking}")


def _wal_key(seq: int) -> str:
    return f"{wal_prefix(SHARD)}{seq:020d}{wal_suffix()}"
