"""Numbers that a cluster gives out once and never again: node ids and producer ids of Kafka's protocol.

They are in the journal, not in the key-value store, so they outlive a loss of etcd, and a broker without etcd uses the
same code:

    node/<broker id>   the node id of a broker, for ever
    nodes              how many node ids are given out
    producer-ids       the first producer id that no block holds

To allot is to append a journal entry, which succeeds only if its writer has read all entries before it. So two brokers
never take the same number, and a crash between the entry and its use leaves a gap. If the answer of the store is lost,
the block is left unused as well.

Hazard: a bucket that is restored to an older state gives numbers out again that were taken since. A producer that holds
such an id must be started again, as the records that it has written since are gone too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tidelog.coordinator.journal import Change, Journal, Put
from tidelog.storage.errors import Corrupt, Invalid

PRODUCER_ID_BLOCK = 100_000
"""Producer ids of a block. A broker takes one when it first needs an id, then whenever its block is used up."""
NODE_ID_MAX = 2**31 - 1
PRODUCER_ID_MAX = 2**63 - 1

_NODES = "nodes"
_PRODUCER_IDS = "producer-ids"


def node_id_of(journal: Journal, broker_id: str) -> int | None:
    """The node id of a broker, according to the entries read so far. Raises `Corrupt`."""
    key = f"node/{broker_id}"
    return None if journal.get(key) is None else _number(journal, key)


async def allot_node_id(journal: Journal, broker_id: str, *, kept: bool) -> int:
    """The node id of `broker_id`: the one that it has, otherwise a new one. `kept`: the id is its own for ever; if not,
    the broker makes up another id at its next start, and nothing is stored of this one. Raises `Unavailable`,
    `Corrupt`, and `Invalid` if 2**31 are given out."""
    allotted = -1

    def decide() -> Sequence[Change]:
        nonlocal allotted
        known = node_id_of(journal, broker_id)
        allotted = _number(journal, _NODES) if known is None else known
        if known is not None:
            return ()
        if allotted > NODE_ID_MAX:
            raise Invalid("no node id is left: set broker.id, so that a broker keeps its node id", field="broker.id")
        taken = _put(_NODES, allotted + 1)
        return (taken, _put(f"node/{broker_id}", allotted)) if kept else (taken,)

    await journal.update(decide)
    return allotted


class ProducerIds:
    """The producer ids that this broker gives out, in blocks."""

    def __init__(self, journal: Journal, block: int = PRODUCER_ID_BLOCK) -> None:
        self._journal = journal
        self._block = block
        self._next = 0
        self._end = 0
        self._allotting = asyncio.Lock()

    async def take(self) -> int:
        """An int64 that no call of any broker of this bucket returns again. Raises `Unavailable`, `Corrupt`."""
        async with self._allotting:
            if self._next == self._end:
                self._next, self._end = await self._allot()
            self._next += 1
            return self._next - 1

    async def _allot(self) -> tuple[int, int]:
        first = 0

        def decide() -> Sequence[Change]:
            nonlocal first
            first = _number(self._journal, _PRODUCER_IDS)
            return (_put(_PRODUCER_IDS, first + self._block),)

        await self._journal.update(decide)
        if first + self._block > PRODUCER_ID_MAX:
            raise Corrupt("meta/ producer-ids", f"says that all ids below {first} are given out")
        return first, first + self._block


def _put(key: str, number: int) -> Put:
    return Put(key, msgspec.Raw(b"%d" % number))


def _number(journal: Journal, key: str) -> int:
    """0 if the key is absent."""
    raw = journal.get(key)
    if raw is None:
        return 0
    try:
        number = msgspec.json.decode(raw, type=int)
    except msgspec.DecodeError as error:
        raise Corrupt(f"meta/ {key}", f"is no number: {error}") from error
    if number < 0:
        raise Corrupt(f"meta/ {key}", f"is {number}")
    return number
