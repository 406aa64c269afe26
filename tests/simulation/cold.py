"""The archive of the simulation: one object log of manifests; each lists every batch archived so far.

It replaces the segments and manifests of real partitions, with the same order of steps and the same create-if-absent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.simulation.batches import Batch, Placed

from tidelog.storage.object_log import ObjectLog
from tidelog.storage.object_store import ObjectStore

COLD_PREFIX = "cold/"
COLD_SUFFIX = ".json"


@dataclass(frozen=True)
class Cold:
    """Version `version` of the archive; -1 before the first."""

    version: int = -1
    batches: tuple[Placed, ...] = ()

    def cold_end(self, partition: int) -> int:
        """The first offset of `partition` that is not archived."""
        ends = [placed.next_offset for placed in self.batches if placed.batch.partition == partition]
        return max(ends, default=0)

    def beyond(self, batches: tuple[Placed, ...]) -> tuple[Placed, ...]:
        """Those of `batches` that are not archived."""
        return tuple(placed for placed in batches if placed.base_offset >= self.cold_end(placed.batch.partition))


def cold_log(store: ObjectStore) -> ObjectLog:
    """The archive's object log."""
    return ObjectLog(store, COLD_PREFIX, COLD_SUFFIX)


def encode_cold(cold: Cold) -> bytes:
    """Encode entry ``cold.version``."""
    return json.dumps(
        [[b.batch.producer, b.batch.sequence, b.batch.partition, b.batch.count, b.base_offset] for b in cold.batches]
    ).encode()


def decode_cold(version: int, data: bytes) -> Cold:
    """The reverse of `encode_cold`."""
    return Cold(version, tuple(Placed(Batch(*batch), base) for *batch, base in json.loads(data)))


async def latest_cold(log: ObjectLog) -> Cold:
    """The newest version. Takes two requests."""
    version = await log.next_number() - 1
    return Cold() if version < 0 else decode_cold(version, (await log.read(version)).data)
