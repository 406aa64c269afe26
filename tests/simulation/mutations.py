"""The mutations by name: what runs wrong, in which weather, and the rule that must catch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation import archive_mutations as archive
from tests.simulation import writer_mutations as writer
from tests.simulation.archive_worker import GRACE_S, WorkerClasses
from tests.simulation.weather import (
    hasty_rivals_weather,
    late_answers_weather,
    rival_workers_weather,
    slow_reader_weather,
    zombie_weather,
)
from tests.simulation.world import Cast


@dataclass(frozen=True)
class Mutation:
    """`rules`: the names that a violation may begin with."""

    cast: Cast = field(default_factory=Cast)
    rules: tuple[str, ...] = ("inv. ", "liveness", "linearizable")


_CASTS: Mapping[str, Cast] = {
    "no floor check": Cast(writer=writer.NoFloorCheck),
    "no floor check of a START": Cast(writer=writer.NoFloorCheckOfStart, weather=zombie_weather),
    "no floor check after a conflict with itself": Cast(
        writer=writer.NoFloorCheckAfterConflict, weather=zombie_weather
    ),
    "a 409 is a success": Cast(writer=writer.ContendedIsSuccess),
    "a 412 is a success": Cast(writer=writer.ConflictIsSuccess),
    "a timeout is a failure": Cast(writer=writer.TimeoutIsFailure),
    "a timeout is a failure, and the number is given up": Cast(writer=writer.TimeoutMovesOn),
    "acknowledges before the create": Cast(writer=writer.AcknowledgesBeforeCreate),
    "forgets the floor's epoch": Cast(writer=writer.ForgetsFloorEpoch),
    "goes on behind another's entry": Cast(writer=writer.GoesOnBehind),
    "no floor check once the trust is over": Cast(floor_trust_s=float("inf"), weather=zombie_weather),
    "the trust is longer than the grace": Cast(floor_trust_s=2 * GRACE_S, weather=hasty_rivals_weather),
    "the trust is counted from the answer": Cast(writer=writer.TrustFromTheAnswer, weather=late_answers_weather),
    "the trust is looked at before the PUT": Cast(writer=writer.TrustBeforeThePut, weather=hasty_rivals_weather),
    "clocks stop with the machine": Cast(clocks_stop_when_stalled=True, weather=zombie_weather),
    "tells ends without a proof": Cast(writer=writer.TellsEndsUnproved),
    "tells ends without a look at the floor": Cast(writer=writer.TellsEndsWithoutTheFloor, weather=zombie_weather),
    "floor before manifest": Cast(worker=WorkerClasses(archiver=archive.FloorBeforeManifest)),
    "a pass skips an entry": Cast(worker=WorkerClasses(archiver=archive.SkipsAnEntry)),
    "a pass forgets the producers": Cast(worker=WorkerClasses(archiver=archive.ForgetsProducers)),
    "no grace": Cast(worker=WorkerClasses(archiver=archive.NoGrace)),
    "appends to any version": Cast(
        worker=WorkerClasses(archiver=archive.PublishesOnAnyVersion), weather=rival_workers_weather
    ),
    "appends without create-if-absent": Cast(shard_log=archive.OverwritesVersions, weather=rival_workers_weather),
    "no look at the log after an append": Cast(shard_log=archive.NoLookAfterAppend, weather=rival_workers_weather),
    "the manifest is trusted for ever": Cast(manifest_trust_s=float("inf"), weather=rival_workers_weather),
    "takes another's version for its own": Cast(shard_log=archive.TagIsNoProof, weather=rival_workers_weather),
    "merges segments that have left the list": Cast(
        worker=WorkerClasses(merge=archive.MergesWhatIsGone), weather=rival_workers_weather
    ),
    "retention keeps too little": Cast(worker=WorkerClasses(expire=archive.ExpiresTooMuch)),
    "garbage is deleted without a grace": Cast(worker=WorkerClasses(collector=archive.NoGraceForGarbage)),
    "versions are deleted without a grace": Cast(worker=WorkerClasses(collector=archive.NoGraceForVersions)),
    "garbage is forgotten before it is deleted": Cast(worker=WorkerClasses(collector=archive.ForgetsGarbageFirst)),
    "versions are deleted before their history": Cast(worker=WorkerClasses(collector=archive.HistoryAfterDeletion)),
    "reads without a second look at the floor": Cast(
        reader=archive.ReadsWithoutSecondLook, weather=slow_reader_weather
    ),
    "a reader does not plan again": Cast(reader=archive.PlansOnce, weather=rival_workers_weather),
    "a reader skips lost segments": Cast(reader=archive.SkipsLostSegments, weather=rival_workers_weather),
}
"""By name. The original design names the first floor check, the 409, the timeout and the early acknowledgement."""

_RULES: Mapping[str, tuple[str, ...]] = {
    "no floor check": ("inv. 1",),
    "acknowledges before the create": ("inv. 1",),
    "forgets the floor's epoch": ("inv. 3",),
    "goes on behind another's entry": ("inv. 3",),
    "tells ends without a proof": ("linearizable",),
    "tells ends without a look at the floor": ("linearizable",),
    "floor before manifest": ("inv. 5",),
    "a pass skips an entry": ("inv. 5",),
    "a pass forgets the producers": ("inv. 7",),
    "no grace": ("inv. 6",),
    "appends to any version": ("inv. 5",),
    "appends without create-if-absent": ("inv. 2",),
    "no look at the log after an append": ("inv. 5",),
    "takes another's version for its own": ("inv. 5", "garbage"),
    "the manifest is trusted for ever": ("error: Invalid", "inv. "),
    "merges segments that have left the list": ("inv. 5",),
    "retention keeps too little": ("retention",),
    "garbage is deleted without a grace": ("grace",),
    "versions are deleted without a grace": ("grace",),
    "garbage is forgotten before it is deleted": ("garbage",),
    "versions are deleted before their history": ("attest",),
    "a reader does not plan again": ("liveness",),
    "a reader skips lost segments": ("inv. 5",),
}

MUTATIONS: Mapping[str, Mutation] = {
    name: Mutation(cast, _RULES.get(name, Mutation().rules)) for name, cast in _CASTS.items()
}
