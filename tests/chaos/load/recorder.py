"""Records the operations of clients as lines of a history file, and a few counts for the harness."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

from tests.chaos.checker.history import Acks, Append, EndQuery, FinalLog, Outcome, Place, Read, Run, TopicRules, Trim
from tests.chaos.checker.history_lines import Operation, format_operation
from tests.chaos.load.calls import Answer

UNEXPECTED_KEPT_MAX = 50


class Recorder:
    """One history file. It is written line by line, so a crash keeps the lines before it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1 << 16)
        self.acknowledged_at: dict[str, float] = defaultdict(float)
        """When the last acknowledged append to each partition, as ``topic/partition``, began."""
        self.counts: Counter[str] = Counter()
        self.unexpected: list[str] = []

    def append(
        self,
        client: str,
        topic: str,
        partition: int | None,
        first: int,
        count: int,
        answer: Answer,
        *,
        keys: Sequence[str] = (),
        sequenced: bool = False,
        expected_offset: int | None = None,
        acks: Acks = Acks.ALL,
    ) -> None:
        """Record one attempt and its answer."""
        placed = _placed(answer)
        if acks is Acks.ALL:
            self._note_acknowledged(topic, placed, answer)
        self.counts[answer.outcome.value] += 1
        append = Append(
            client=client,
            topic=topic,
            partition=partition,
            first=first,
            count=count,
            placed=placed,
            keys=tuple(keys),
            sequenced=sequenced,
            expected_offset=expected_offset,
            next_offset=answer.body.get("next_offset") if answer.outcome is Outcome.CONFLICT else None,
            acks=acks,
            **_answered(answer),
        )
        self._record(client, topic, partition, answer, append)

    def read(self, session: str, topic: str, partition: int, offset: int, answer: Answer, runs: Sequence[Run]) -> None:
        """Record one step of a session, even if it brought nothing."""
        self.counts[f"read {answer.outcome.value}"] += 1
        next_offset = answer.body["next_offset"] if answer.ok else offset
        told = _answered(answer)
        if answer.outcome is Outcome.FAIL:
            told["outcome"] = Outcome.UNKNOWN
        log_start = answer.body.get("log_start_offset", 0)
        read = Read(session, topic, partition, offset, next_offset, tuple(runs), log_start, **told)
        self._record(session, topic, partition, answer, read)

    def streamed(
        self, session: str, topic: str, partition: int, offset: int, runs: Sequence[Run], arrived_at: float
    ) -> None:
        """Record the records that a stream brought to a session at `offset`."""
        body = {"next_offset": runs[-1].offset + runs[-1].count}
        self.read(session, topic, partition, offset, Answer(200, "", arrived_at, arrived_at, body), runs)

    def end(self, session: str, topic: str, partition: int, answer: Answer) -> None:
        """Record a query for the end of a partition."""
        self.counts[f"end {answer.outcome.value}"] += 1
        offset = answer.body["offset"] if answer.ok else None
        query = EndQuery(session, topic, partition, offset, **_answered(answer))
        self._record(session, topic, partition, answer, query)

    def trim(self, client: str, topic: str, partition: int, before_offset: int, answer: Answer) -> None:
        """Record a deletion of records."""
        self.counts[f"trim {answer.outcome.value}"] += 1
        trim = Trim(client, topic, partition, before_offset, **_answered(answer))
        self._record(client, topic, partition, answer, trim)

    def changed(self, client: str, what: str, answer: Answer) -> None:
        """Record a change of a topic. No rule judges it except by its error code."""
        self.counts[f"change {answer.outcome.value}"] += 1
        self._note_unexpected(client, what, answer)

    def grouped(self, client: str, operation: Operation, answer: Answer, *, refusals: Set[str]) -> None:
        """Record a call of a group's member. The codes in `refusals` are no failures."""
        self.counts[f"{type(operation).__name__} {answer.code or 'ok'}"] += 1
        if answer.code not in refusals:
            self._note_unexpected(client, type(operation).__name__, answer)
        self._write(operation, broker=answer.broker)

    def failed(self, client: str, told: str) -> None:
        """Record that a shipped client gave up, which fails the run."""
        if len(self.unexpected) < UNEXPECTED_KEPT_MAX:
            self.unexpected.append(f"{client} at {time.monotonic():.3f}: {told}")

    def topic(self, rules: TopicRules) -> None:
        """Record the promises that a topic's settings remove."""
        self._write(rules)

    def final(self, topic: str, partition: int, log_start_offset: int, runs: Sequence[Run]) -> None:
        """Record the contents of a partition at the end."""
        self._write(FinalLog(topic, partition, log_start_offset, tuple(runs)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _note_acknowledged(self, topic: str, placed: Sequence[Place], answer: Answer) -> None:
        for each in placed:
            place = f"{topic}/{each.partition}"
            self.acknowledged_at[place] = max(self.acknowledged_at[place], answer.start)

    def _record(self, client: str, topic: str, partition: int | None, answer: Answer, operation: Operation) -> None:
        self._note_unexpected(client, f"{topic}/{partition}", answer)
        self._write(operation, broker=answer.broker)

    def _note_unexpected(self, client: str, what: str, answer: Answer) -> None:
        if not answer.expected and len(self.unexpected) < UNEXPECTED_KEPT_MAX:
            told = f"{client} on {what} at {answer.start:.3f}: {answer.status} {answer.code}"
            self.unexpected.append(f"{told}: {answer.body.get('detail', '')}")

    def _write(self, operation: Operation, broker: str = "") -> None:
        self._file.write(format_operation(operation, broker=broker) + "\n")


class _Answered(TypedDict):
    """The fields of `Answered`."""

    start: float
    end: float
    outcome: Outcome
    code: str


def _answered(answer: Answer) -> _Answered:
    return {"start": answer.start, "end": answer.end, "outcome": answer.outcome, "code": answer.code}


def _placed(answer: Answer) -> tuple[Place, ...]:
    """The places of an acknowledged append. With acks=0 nobody knows them."""
    told = answer.body.get("partitions", ()) if answer.ok else ()
    return tuple(Place(p["partition"], p["base_offset"], p["count"]) for p in told if p["base_offset"] is not None)
