"""The description of the load, passed from the harness to the load process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

ORDERED, MIXED, CONTENDED = "ordered", "mixed", "contended"


@dataclass(frozen=True)
class Workload:
    """`brokers` are the addresses for clients, ``http://HOST:PORT``, and `kafka` the ``bootstrap.servers`` of clients
    of Kafka. `pause_s` is the mean time between two requests of a producer, chosen so that two cores are enough for the
    cluster and its clients."""

    seed: int
    brokers: Sequence[str]
    partitions: Mapping[str, int]
    pause_s: float = 0.15
    batch_records_max: int = 30
    kafka: str = ""

    def places(self) -> Iterator[tuple[str, int]]:
        return ((topic, partition) for topic, count in self.partitions.items() for partition in range(count))

    def text(self) -> str:
        return json.dumps(asdict(self))


def parse_workload(text: str) -> Workload:
    return Workload(**json.loads(text))


class Chance:
    """A client's own random draws: they do not depend on the speed of other clients."""

    def __init__(self, workload: Workload, client: str) -> None:
        self._draw = random.Random(f"{workload.seed}/{client}")
        self._workload = workload

    def broker(self) -> str:
        return self._draw.choice(self._workload.brokers)

    def records(self) -> int:
        return self._draw.randint(1, self._workload.batch_records_max)

    def pause_s(self) -> float:
        return self._draw.uniform(0.5, 1.5) * self._workload.pause_s

    def below(self, end: int) -> int:
        return self._draw.randrange(end)
