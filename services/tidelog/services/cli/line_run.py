"""Sends the lines of one input to one topic. If the run stops early, it says which lines are in the log and how to
continue exactly there.

Lines are counted from 1 over the whole input. A run stops at a line that is wrong or refused, at Ctrl-C, or when no
broker answers. There are two cases:

- The outcome of every line that was sent is known. The next run begins at the next line: ``--resume-from-line N``.
- The outcome of some lines is unknown. Each partition then holds the first lines of those that belong to it. The log
  knows how many, because the run numbers its records by a producer id (inv. 7). ``--resume RUN`` asks the broker for
  these numbers and skips that many lines of each partition. Therefore the partition of a line must depend on the input
  alone: on its key, or on its place in the input (`PLACE_BYTES`).
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.client import Delivered, Producer, Refused
from tidelog.services.cli.console import complain
from tidelog.services.cli.input_lines import Lines
from tidelog.services.cli.line_records import LineShape
from tidelog.storage.errors import Invalid, TidelogError
from tidelog.storage.partitioner import NO_PARTITION, partitions_of

PLACE_BYTES = 1 << 20
"""Lines without a key go to the partitions in turn: this many bytes of input to each."""
STOPPED_FLUSH_S = 5.0
"""How long an interrupted run waits for the acknowledgement of the lines that it has sent."""

Partitions = npt.NDArray[np.int32]
_RUN = re.compile(r"(\d{1,18})\.(\d{1,9})\.(\d{1,18})\.([0-9a-f]{32})")


@dataclass(frozen=True)
class RunName:
    """The value of ``--resume``: the first line of the run, the number of partitions, the number of acknowledged
    records, and a random id.

    >>> RunName.parsed("1.4.1000." + "0" * 32).records
    1000
    """

    first_line: int
    partition_count: int
    records: int
    random_id: str

    @classmethod
    def parsed(cls, text: str) -> RunName:
        found = _RUN.fullmatch(text)
        if not found:
            raise Invalid(
                "--resume takes the text that an earlier `topic produce` printed when it stopped", field="resume"
            )
        return cls(int(found[1]), int(found[2]), int(found[3]), found[4])

    def __str__(self) -> str:
        return f"{self.first_line}.{self.partition_count}.{self.records}.{self.random_id}"


@dataclass(frozen=True)
class LineRules:
    """How lines become records, and the partition that gets all of them (None: by key or place)."""

    shape: LineShape
    partition: int | None = None


class Tally:
    """Counts the outcomes of records. The producer's threads call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged = 0
        self.refused: Refused | None = None

    def delivered(self, delivered: Delivered) -> None:
        with self._lock:
            self.acknowledged += delivered.count

    def refuse(self, refused: Refused) -> None:
        with self._lock:
            if self.refused is None or refused.number < self.refused.number:
                self.refused = refused


class LineRun:
    """Sends lines from `first_line` on. `random_id` is None if the run cannot be resumed (acks is not all)."""

    def __init__(
        self, producer: Producer, tally: Tally, rules: LineRules, *, first_line: int = 1, random_id: str | None = None
    ) -> None:
        self._producer = producer
        self._tally = tally
        self._rules = rules
        self._first_line = first_line
        self._random_id = random_id
        self._next_line = 1
        self._next_byte = 0
        self._held: dict[int, int] = {}
        self._held_records = 0
        self._given = 0
        self._base_line = first_line
        self._sent_again: list[npt.NDArray[np.int64]] = []

    @property
    def records(self) -> int:
        """The records in the log that this run, or the run that it resumes, has sent."""
        return self._held_records + self._tally.acknowledged

    def resume(self, earlier: RunName) -> None:
        """Skip the lines of `earlier` that are in the log. Raises `Invalid` if the brokers no longer know them."""
        if self._producer.partition_count != earlier.partition_count:
            raise Invalid(
                f"{self._producer.topic} had {earlier.partition_count} partitions and has "
                f"{self._producer.partition_count}: it is unknown which lines are in it. Look at the end of the topic "
                "and use --resume-from-line",
                field="resume",
            )
        self._held = dict(self._producer.resume())
        self._held_records = sum(self._held.values())
        if self._held_records < earlier.records:
            raise Invalid(
                f"the broker remembers {self._held_records:,} records of this run, and {earlier.records:,} were "
                "acknowledged: it has forgotten the run. Look at the end of the topic and use --resume-from-line",
                field="resume",
            )

    def send(self, lines: Lines) -> None:
        """Send the next lines of the input. Raises `Invalid` for the first line that is wrong, after sending those
        before it, and for a line that a broker refused."""
        first, places = self._next_line, self._places(lines)
        before = min(max(0, self._first_line - first), len(lines))
        table, wrong = self._rules.shape.table(lines.slice(before))
        self._next_line = first + before + table.num_rows
        self._send_table(table, places[before : before + table.num_rows], first + before)
        if wrong is not None:
            raise Invalid(f"line {self._next_line:,} is wrong: {wrong}", field=wrong.field) from wrong
        self._raise_refusal()

    def flush(self) -> None:
        """Return when every line is in the log."""
        self._producer.flush()
        self._raise_refusal()

    @contextmanager
    def saying_where_it_stops(self) -> Iterator[None]:
        """Add to an error, or print at an interrupt, how many records are in the log and how to continue."""
        try:
            yield
        except TidelogError as error:
            error.add_note(self._how_to_continue(None))
            raise
        except KeyboardInterrupt:
            complain(f"stopped: {self._how_to_continue(STOPPED_FLUSH_S)}")
            raise

    def _places(self, lines: Lines) -> Partitions:
        """The partition of each line if it has no key: the one that the user chose, or by its place in the input."""
        count = self._producer.partition_count
        if self._rules.partition is not None or count == 1:
            return np.full(len(lines), self._rules.partition or 0, np.int32)
        offsets: Any = lines.buffers()[1]  # `line_arrays` gives whole arrays
        starts = np.frombuffer(offsets, np.int32, len(lines) + 1) + np.arange(len(lines) + 1)  # plus the newlines
        first, self._next_byte = self._next_byte, self._next_byte + int(starts[-1])
        stretches = np.arange(first // PLACE_BYTES, self._next_byte // PLACE_BYTES + 1)
        edges = np.searchsorted(starts[:-1], [*(stretches[1:] * PLACE_BYTES - first), self._next_byte - first])
        return np.repeat(stretches % count, np.diff(edges, prepend=0)).astype(np.int32)

    def _send_table(self, table: pa.Table, places: Partitions, first_line: int) -> None:
        if not table.num_rows:
            return
        by_key = self._rules.shape.has_keys and self._rules.partition is None
        if by_key:
            of_keys = partitions_of(table.column("key"), self._producer.partition_count)
            places = np.where(of_keys == NO_PARTITION, places, of_keys).astype(np.int32)
        if any(self._held.values()):
            rows = self._not_held(places)
            self._sent_again.append(rows + first_line)
            table, places = table.take(rows), places[rows]
            if not table.num_rows:
                return
        else:
            self._base_line = first_line - self._given
            self._given += table.num_rows
        if by_key:
            self._producer.send_batch(table.append_column("partition", _int32_array(places)))
            return
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), table.num_rows]
        for start, end in itertools.pairwise(edges):
            self._producer.send_batch(table.slice(start, end - start), partition=int(places[start]))

    def _not_held(self, places: Partitions) -> npt.NDArray[np.int64]:
        """The rows that are not in the log yet."""
        kept = np.ones(len(places), bool)
        for partition, held in self._held.items():
            rows = np.flatnonzero(places == partition)[:held]
            kept[rows] = False
            self._held[partition] = held - len(rows)
        return np.flatnonzero(kept)

    def _raise_refusal(self) -> None:
        refused = self._tally.refused
        if refused is not None:
            line, reason = self._line_of(refused.number), refused.error.__cause__ or refused.error
            raise Invalid(f"line {line:,} was refused and is not in the log: {reason}", field=refused.error.field)

    def _line_of(self, number: int) -> int:
        """The line of the record that was sent after `number` others."""
        for lines in self._sent_again:
            if number < len(lines):
                return int(lines[number])
            number -= len(lines)
        return number + self._base_line

    def _how_to_continue(self, flush_s: float | None) -> str:
        answered = self._all_answered(flush_s)
        known = f"{self.records:,} records are in {self._producer.topic}"
        if answered:
            next_line = max(self._next_line, self._first_line)
            return f"{known}. To continue with the same input: --resume-from-line {next_line}"
        first_open = self._producer.first_open
        line = self._next_line if first_open is None else self._line_of(first_open)
        known += f" for certain; line {line:,} is the first whose outcome is unknown"
        if self._random_id is None or self._tally.refused is not None:
            return f"{known}. --resume-from-line {line} continues there and may repeat records"
        run = RunName(self._first_line, self._producer.partition_count, self.records, self._random_id)
        return f"{known}. To continue exactly where the log ends, with the same input and options: --resume {run}"

    def _all_answered(self, flush_s: float | None) -> bool:
        """Whether every line that was sent is in the log or refused, now or within `flush_s`."""
        try:
            self._producer.flush(flush_s)
        except TidelogError:
            return False
        return self._producer.first_open is None


def _int32_array(numbers: Partitions) -> pa.Array[Any]:
    """An Arrow array without a copy. `pa.array` would import pandas, which takes longer than most inputs."""
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers).data)])
