"""Wrong versions of the protocol, each with one mistake. The simulation must catch every one of them.

Each overrides one method of one state, or one step of the archiver or reader. The product does not know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.simulation.archiver import GRACE_S, Archiver
from tests.simulation.batches import TOPIC_ID, Placed
from tests.simulation.cold import archived
from tests.simulation.light_codec import NO_RECORDS
from tests.simulation.reader import Reader
from tests.simulation.weather import slow_reader_weather, zombie_weather
from tests.simulation.world import Cast

from tidelog.storage.errors import Contended, Invalid, Unavailable
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ColdState
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry, WalHeader
from tidelog.storage.wal.wal_writer import WalWriter


class NoFloorCheck(WalWriter):
    """Takes every successful PUT as a commit."""

    async def _checking_trust(self) -> None:
        self._win(self._put_since_s)


class NoFloorCheckOfStart(WalWriter):
    """Takes every successful START as an epoch."""

    async def _checking_trust(self) -> None:
        if self._entry().header.kind is EntryKind.START:
            self._win(self._put_since_s)
        else:
            await super()._checking_trust()


class NoFloorCheckAfterConflict(WalWriter):
    """Finds its own entry at its number, and checks nothing further."""

    async def _resolving(self) -> None:
        await super()._resolving()
        if self._state is State.CHECKING_TRUST:
            self._win(self._put_since_s)


class TrustFromTheAnswer(WalWriter):
    """Counts the trust from the arrival of the answer, although it may have slept since the answer's information was
    true."""

    def _win(self, above_floor_s: float) -> None:
        super()._win(self._runtime.clock.monotonic())


class TrustBeforeThePut(WalWriter):
    """Checks the clock before the PUT is sent, not after the answer arrives."""

    _looked_s = 0.0

    async def _putting(self) -> None:
        self._looked_s = self._runtime.clock.monotonic()
        await super()._putting()

    async def _checking_trust(self) -> None:
        is_start = self._entry().header.kind is EntryKind.START
        if not is_start and self._looked_s - self._above_floor_s < self._floor_trust_s:
            self._win(self._put_since_s)
        else:
            self._state = State.CHECKING_FLOOR


class ContendedIsSuccess(WalWriter):
    """Takes a 409 as success."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Contended:
            self._state = State.CHECKING_TRUST


class ConflictIsSuccess(WalWriter):
    """Takes a 412 as its own lost PUT, without reading the entry."""

    async def _resolving(self) -> None:
        self._state = State.CHECKING_TRUST


class TimeoutIsFailure(WalWriter):
    """Takes a timeout as "not done": refuses the batch, and sends it again under another id."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Unavailable as error:
            if self._entry().header.kind is EntryKind.START:
                raise
            self._pending = None
            self._state = State.LEADING
            raise Invalid("not appended") from error


class TimeoutMovesOn(TimeoutIsFailure):
    """Like `TimeoutIsFailure`, and leaves the number to the batch that it gave up."""

    async def _putting(self) -> None:
        try:
            await super()._putting()
        except Invalid:
            self._next_seq += 1
            raise


class AcknowledgesBeforeCreate(WalWriter):
    """Answers first, and writes the entry when the next one comes."""

    _late: PreparedEntry | None = None

    async def _putting(self) -> None:
        entry = self._entry()
        if entry.header.kind is EntryKind.RECORDS:
            late, self._late = self._late, entry
            if late is not None:
                await self._wal.create(late)
            self._win(self._put_since_s)
        else:
            await super()._putting()


class ForgetsFloorEpoch(WalWriter):
    """Begins again at epoch 1 when the log is empty because everything is archived."""

    async def _searching(self) -> None:
        tail = await self._search.step()
        if tail is not None:
            is_empty = tail.next_seq == tail.floor.number
            self._epoch, self._next_seq = (1 if is_empty else tail.epoch + 1), tail.next_seq
            self._begin_put(self._start_entry())


class GoesOnBehind(WalWriter):
    """Finds another leader's entry at its number, and takes the next number instead of stepping down."""

    async def _resolving(self) -> None:
        header = self._entry().header
        await super()._resolving()
        if self._state is State.FENCED:
            self._next_seq = header.seq + 1
            moved = replace(header, seq=self._next_seq)
            self._begin_put(PreparedEntry(moved, self._wal.codec.encode(moved, NO_RECORDS)))


class TellsEndsUnproved(WalWriter):
    """Answers reads at the end from memory, without a proof."""

    async def is_overtaken(self) -> bool:
        return False


class TellsEndsWithoutTheFloor(WalWriter):
    """Takes an entry that does not exist as one that was never made."""

    async def _floor_is_beyond(self) -> bool:
        return False


class FloorBeforeManifest(Archiver):
    """Raises the floor by a version of its own, then archives."""

    async def publish(self, manifest: ShardManifest, fresh: tuple[Placed, ...], last: WalHeader) -> None:
        moved = await self._log.append(archived((), Floor(last.seq + 1, last.epoch)), manifest)
        await self.append(await self._change(moved, fresh, None), moved)


class NoGrace(Archiver):
    """Deletes as soon as the floor has passed."""

    def is_ripe(self, waited_s: float) -> bool:
        return True


class AppendsToAnyVersion(Archiver):
    """Appends what it read to the newest version, whatever others have archived meanwhile."""

    async def append(self, change: ManifestChange, began: ShardManifest) -> None:
        latest = await self._log.latest()
        floor = change.floor if change.floor and change.floor.number > latest.floor.number else None
        topics = {
            topic_id: replace(topic, partitions={n: _not_before(latest, n, at) for n, at in topic.partitions.items()})
            for topic_id, topic in change.topics.items()
        }
        await super().append(replace(change, topics=topics, floor=floor), latest)


def _not_before(latest: ShardManifest, partition: int, state: ColdState) -> ColdState:
    topic = latest.topics.get(TOPIC_ID)
    return max(state, topic.partition(partition), key=lambda each: each.cold_end) if topic else state


class ReadsWithoutSecondLook(Reader):
    """Trusts what it read by number, however long the read took."""

    async def still_in_log(self, floor: Floor) -> bool:
        return True


MUTATIONS: Mapping[str, Cast] = {
    "no floor check": Cast(writer=NoFloorCheck),
    "no floor check of a START": Cast(writer=NoFloorCheckOfStart, weather=zombie_weather),
    "no floor check after a conflict with itself": Cast(writer=NoFloorCheckAfterConflict, weather=zombie_weather),
    "a 409 is a success": Cast(writer=ContendedIsSuccess),
    "a 412 is a success": Cast(writer=ConflictIsSuccess),
    "a timeout is a failure": Cast(writer=TimeoutIsFailure),
    "a timeout is a failure, and the number is given up": Cast(writer=TimeoutMovesOn),
    "acknowledges before the create": Cast(writer=AcknowledgesBeforeCreate),
    "forgets the floor's epoch": Cast(writer=ForgetsFloorEpoch),
    "goes on behind another's entry": Cast(writer=GoesOnBehind),
    "no floor check once the trust is over": Cast(floor_trust_s=float("inf"), weather=zombie_weather),
    "the trust is longer than the grace": Cast(floor_trust_s=2 * GRACE_S, weather=zombie_weather),
    "the trust is counted from the answer": Cast(writer=TrustFromTheAnswer, weather=zombie_weather),
    "the trust is looked at before the PUT": Cast(writer=TrustBeforeThePut, weather=zombie_weather),
    "clocks stop with the machine": Cast(clocks_stop_when_stalled=True, weather=zombie_weather),
    "tells ends without a proof": Cast(writer=TellsEndsUnproved),
    "tells ends without a look at the floor": Cast(writer=TellsEndsWithoutTheFloor, weather=zombie_weather),
    "floor before manifest": Cast(archiver=FloorBeforeManifest),
    "no grace": Cast(archiver=NoGrace),
    "appends to any version": Cast(archiver=AppendsToAnyVersion, weather=slow_reader_weather),
    "reads without a second look at the floor": Cast(reader=ReadsWithoutSecondLook, weather=slow_reader_weather),
}
"""By name. The original design names the first floor check, the 409, the timeout and the early acknowledgement."""
