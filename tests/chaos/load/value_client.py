"""A client that makes values and sends them to brokers chosen at random. It records every attempt.

It has one request in flight. Unless a subclass says otherwise, it never sends a value twice, so the outcome of a
request without an answer stays unknown.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from tests.chaos.checker.history import Acks
from tests.chaos.load.calls import ARROW, Answer
from tests.chaos.load.means import Means
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Chance

KEYS = 40
RARELY = 4
"""How many times more rarely than a plain producer the clients of special topics act."""
TEXT, JSON = "text/plain", "application/json"


@dataclass(frozen=True)
class Batch:
    """`count` values of `client` from number `first` on. `keys`: one for each value, or none."""

    client: str
    first: int
    count: int
    keys: Sequence[str] = ()

    def values(self) -> Iterator[Value]:
        for n in range(self.count):
            yield Value(self.client, self.first + n, self.keys[n] if self.keys else "")


@dataclass(frozen=True)
class Sending:
    """How a batch is sent. The names are those of `Append`."""

    topic: str
    partition: int | None = 0
    sequenced: bool = False
    expected_offset: int | None = None
    acks: Acks = Acks.ALL
    arrow: bool = False

    @property
    def path(self) -> str:
        partition = "" if self.partition is None else f"/partitions/{self.partition}"
        query = [f"acks={self.acks.value}"] if self.acks is not Acks.ALL else []
        query += [] if self.expected_offset is None else [f"expected_offset={self.expected_offset}"]
        return f"/v1/topics/{self.topic}{partition}/records?{'&'.join(query)}"

    def body(self, batch: Batch) -> tuple[str, bytes]:
        """The media type and the bytes."""
        if self.arrow:
            return ARROW, _arrow(batch.values())
        return (JSON, _json(batch.values())) if batch.keys else (TEXT, _lines(batch.values()))

    def headers(self, batch: Batch) -> Mapping[str, str]:
        if not self.sequenced:
            return {}
        return {
            "Tidelog-Producer-Id": batch.client,
            "Tidelog-Producer-Epoch": "0",
            "Tidelog-Sequence": str(batch.first),
        }


class ValueClient(ABC):
    """`pauses`: its pause between two steps, in pauses of a plain producer."""

    pauses: ClassVar[int] = 1

    def __init__(self, means: Means, name: str) -> None:
        self._means = means
        self._name = name
        self._chance = Chance(means.workload, name)
        self._next = 0

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            await self._step()
            await self._means.pause(self.pauses * self._chance.pause_s())

    @abstractmethod
    async def _step(self) -> None: ...

    def _new_batch(self, count: int | None = None, *, keyed: bool = False) -> Batch:
        """Values that were not sent before."""
        first, chosen = self._next, count or self._chance.records()
        self._next += chosen
        keys = [f"k{self._chance.below(KEYS)}" for _ in range(chosen)] if keyed else []
        return Batch(self._name, first, chosen, keys)

    async def _send(self, batch: Batch, sending: Sending, *, recorded_topic: str = "") -> Answer:
        """Make one attempt and record it."""
        media_type, body = sending.body(batch)
        headers = {"Content-Type": media_type, **sending.headers(batch)}
        answer = await self._means.caller.post(self._chance.broker() + sending.path, body, headers)
        self._means.recorder.append(
            self._name,
            recorded_topic or sending.topic,
            sending.partition,
            batch.first,
            batch.count,
            answer,
            keys=batch.keys,
            sequenced=sending.sequenced,
            expected_offset=sending.expected_offset,
            acks=sending.acks,
        )
        return answer


def _lines(values: Iterable[Value]) -> bytes:
    return "".join(f"{value.text}\n" for value in values).encode()


def _json(values: Iterable[Value]) -> bytes:
    return json.dumps({"records": [{"key": value.key, "value": value.text} for value in values]}).encode()


def _arrow(values: Iterable[Value]) -> bytes:
    texts = [value.text.encode() for value in values]
    table, sink = pa.table({"value": pa.array(texts, pa.binary())}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
