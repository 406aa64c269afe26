"""Writes down what clients did: the lines of `checker/history.py`, and a few remarks for the report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.load.calls import Answer

UNEXPECTED_KEPT_MAX = 50


class Recorder:
    """One history file, written line by line so that a crash leaves what came before it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1 << 16)
        self.acknowledged_at: dict[str, float] = defaultdict(float)
        """When the last acknowledged append to each partition, as ``topic/partition``, had begun."""
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
    ) -> None:
        """One attempt and its answer."""
        placed = [
            [p["partition"], p["base_offset"], p["count"]] for p in answer.body.get("partitions", ()) if answer.ok
        ]
        for number, _, _ in placed:
            place = f"{topic}/{number}"
            self.acknowledged_at[place] = max(self.acknowledged_at[place], answer.start)
        self.counts[answer.outcome] += 1
        self._note_unexpected(client, topic, partition, answer)
        self._write(
            {
                "op": "append",
                "client": client,
                "topic": topic,
                "partition": partition,
                "first": first,
                "count": count,
                "keys": list(keys),
                "sequenced": sequenced,
                "expected_offset": expected_offset,
                "start": answer.start,
                "end": answer.end,
                "outcome": answer.outcome,
                "placed": placed,
                "next_offset": answer.body.get("next_offset") if answer.outcome == "conflict" else None,
                "code": answer.code,
                "broker": answer.broker,
            }
        )

    def read(
        self, session: str, topic: str, partition: int, offset: int, answer: Answer, runs: list[list[object]]
    ) -> None:
        """One step of a session."""
        self.counts[f"read {answer.outcome}"] += 1
        self._note_unexpected(session, topic, partition, answer)
        self._write(
            {
                "op": "read",
                "session": session,
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "next_offset": answer.body["next_offset"] if answer.ok else offset,
                "start": answer.start,
                "end": answer.end,
                "outcome": answer.outcome if answer.outcome != "fail" else "unknown",
                "runs": runs,
                "code": answer.code,
                "broker": answer.broker,
            }
        )

    def streamed(
        self, session: str, topic: str, partition: int, offset: int, runs: list[list[object]], end: float
    ) -> None:
        """Records that a stream brought to a session that stood at `offset`."""
        last_offset, _, _, count = runs[-1]
        body = {"next_offset": int(str(last_offset)) + int(str(count))}
        self.read(session, topic, partition, offset, Answer(200, "", end, end, body), runs)

    def final(self, topic: str, partition: int, log_start_offset: int, runs: list[list[object]]) -> None:
        """What a partition holds at the end."""
        self._write(
            {
                "op": "final",
                "topic": topic,
                "partition": partition,
                "log_start_offset": log_start_offset,
                "runs": runs,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def _note_unexpected(self, client: str, topic: str, partition: int | None, answer: Answer) -> None:
        if not answer.expected and len(self.unexpected) < UNEXPECTED_KEPT_MAX:
            told = f"{client} on {topic}/{partition} at {answer.start:.3f}: {answer.status} {answer.code}"
            self.unexpected.append(f"{told}: {answer.body.get('detail', '')}")

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
