"""An idempotent producer with five requests in flight, as Kafka's clients have it, for tests that break things."""

import asyncio
from collections import deque
from collections.abc import Callable

from tests.anybody import ANYBODY
from tests.broker.part_drafts import batch

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.produce import Acks, Appended, PartDraft
from tidelog.services.broker.shard.idempotence import WRAP
from tidelog.storage.errors import Fenced, SequenceConflict, Unavailable

IN_FLIGHT = 5


class PipelinedProducer:
    """Sends `total` records in batches of 1 to 3, from sequence `first` on; the value of a record is its sequence.

    It places up to five batches, one after the other, and reads the answers in order. Batches that failed are placed
    again, in order. A conflict is allowed only behind a batch that failed."""

    def __init__(self, leader: Callable[[], Broker], first: int, total: int) -> None:
        self._leader = leader
        self.sequences = [(first + number) % WRAP for number in range(total)]
        self.acknowledged: list[tuple[int, int]] = []
        self.retries = 0

    async def run(self) -> None:
        unsent, pending = deque(self._batches()), deque[tuple[int, int]]()
        while unsent or pending:
            while unsent and len(pending) < IN_FLIGHT:
                pending.append(unsent.popleft())
            failed = [one for one, answer in zip(pending, await self._answers(pending), strict=True) if answer.error]
            self.retries += len(failed)
            pending = deque(failed)
            if failed:
                await asyncio.sleep(0.001)

    async def _answers(self, pending: deque[tuple[int, int]]) -> list[Appended]:
        broker = self._leader()
        appendings = [await broker.append_parts(ANYBODY, [self._part(*one)], Acks.ALL) for one in pending]
        answers = [(await appending.answers())[0] for appending in appendings]
        failures = 0
        for (at, _), answer in zip(pending, answers, strict=True):
            if answer.error:
                allowed = (Unavailable, Fenced, SequenceConflict) if failures else (Unavailable, Fenced)
                assert isinstance(answer.error, allowed), answer.error
                failures += 1
            else:
                assert answer.base_offset is not None
                self.acknowledged.append((at, answer.base_offset))
        return answers

    def _part(self, at: int, count: int) -> PartDraft:
        return batch(self.sequences[at], count)

    def _batches(self) -> list[tuple[int, int]]:
        """The place of the first record and the number of records of each batch."""
        found, at = [], 0
        while at < len(self.sequences):
            count = min(1 + at % 3, len(self.sequences) - at)
            found.append((at, count))
            at += count
        return found
