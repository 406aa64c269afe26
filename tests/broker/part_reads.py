"""Fetches of many partitions of one topic in tests."""

from collections.abc import Mapping

from tests.anybody import ANYBODY
from tests.broker.drafts import values_of

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import FetchedPart, FetchLimits, FetchPart, Position

BYTES_MAX = 1 << 30
ALL = FetchLimits(1_000_000, BYTES_MAX)


async def fetch_parts(
    broker: Broker, offsets: Mapping[int, int | Position], limits: FetchLimits = ALL, *, topic: str = "t"
) -> list[FetchedPart]:
    """The answers for partitions of `topic`, each from its offset on."""
    parts = [FetchPart(topic, number, offset, BYTES_MAX) for number, offset in offsets.items()]
    return list(await broker.fetch_parts(ANYBODY, parts, limits))


def read_values(answers: list[FetchedPart]) -> dict[int, list[bytes]]:
    """The values of each partition that has records."""
    fetched = {answer.part.partition: answer.fetched for answer in answers}
    return {number: values_of(each) for number, each in fetched.items() if each and each.batches}
