"""Parts for tests of `append_parts`."""

from collections.abc import Sequence

from tests.anybody import ANYBODY
from tests.broker.drafts import numbered, offsets_of, values_of

from tidelog.services.broker.api.fetch import Anchor, FetchLimits, Position
from tidelog.services.broker.api.produce import Acks, Appended, Draft, PartDraft, ProducerSequence
from tidelog.services.broker.local_broker import LocalBroker

ALL = FetchLimits(1_000_000, 1 << 30)


def part(draft: Draft, partition: int = 0, *, topic: str = "t", producer: ProducerSequence | None = None) -> PartDraft:
    return PartDraft(topic, partition, draft.records, draft.body_bytes, producer)


def batch(sequence: int, count: int = 1, *, epoch: int = 0, wraps: bool = True, producer: str = "p") -> PartDraft:
    """A batch of producer `producer` for partition 0 of `t`; its values are its sequences."""
    return part(numbered(sequence, count), producer=ProducerSequence(producer, epoch, sequence, wraps))


async def appended(broker: LocalBroker, *parts: PartDraft, acks: Acks = Acks.ALL) -> Sequence[Appended]:
    """Append and wait for the answers."""
    return await (await broker.append_parts(ANYBODY, parts, acks)).answers()


def errors_of(answers: Sequence[Appended]) -> list[type[Exception] | None]:
    return [type(answer.error) if answer.error else None for answer in answers]


def offsets(answers: Sequence[Appended]) -> list[int | None]:
    return [answer.base_offset for answer in answers]


async def stored_values(broker: LocalBroker, topic: str = "t", partition: int = 0) -> list[int]:
    """The numbers that are stored, whose offsets are dense."""
    start = await broker.resolve(ANYBODY, topic, partition, Position(Anchor.EARLIEST))
    fetched = await broker.fetch(ANYBODY, topic, partition, start, ALL)
    assert offsets_of(fetched) == list(range(start, fetched.high_watermark))
    return [int(value) for value in values_of(fetched)]
