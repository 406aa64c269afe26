"""The body of ``POST /v1/fetch`` and its answer in Arrow (`tidelog.wire.polls`).

An answer is one stream. How far each partition was read is in the metadata of its schema, so a consumer can send the
next request before it has decompressed a record. The records are decoded when the first of them is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.client.connection import Answer
from tidelog.client.consumed import TopicPartition
from tidelog.client.fetched_parts import Body, FetchPlan, PartOutcome
from tidelog.storage.errors import Corrupt, TidelogError, Unavailable
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.wire.errors import RETRY_AFTER_S, Problem, error_of_problem
from tidelog.wire.polls import ARROW_STATE, PartRequest, PartsAnswer, PartsRequest, PartState


def fetch_request(plan: FetchPlan, *, max_bytes: int | None, max_records: int | None, wait_ms: int) -> bytes:
    """The body that asks for the partitions of `plan`."""
    parts = tuple(PartRequest(part.partition.topic, part.partition.partition, part.at) for part in plan.parts)
    return msgspec.json.encode(PartsRequest(parts, max_bytes, max_records, wait_ms))


def fetch_answer(answer: Answer) -> tuple[Mapping[TopicPartition, PartOutcome], Body]:
    """How far each partition was read, and the records. Raises `Corrupt`."""
    try:
        stream = pa.ipc.open_stream(pa.py_buffer(answer.body), options=pa.ipc.IpcReadOptions(use_threads=False))
        state = msgspec.json.decode((stream.schema.metadata or {})[ARROW_STATE], type=PartsAnswer)
    except (pa.ArrowException, KeyError, msgspec.MsgspecError) as error:
        raise Corrupt("the broker's answer", f"does not have the form in docs/http-api.md ({error})") from error
    outcomes = {TopicPartition(part.topic, part.partition): _outcome(part) for part in state.partitions}
    return outcomes, Body(len(answer.body), _Records(stream).of)


def _outcome(part: PartState) -> PartOutcome:
    ends = (-1 if part.high_watermark is None else part.high_watermark, part.log_start_offset or 0)
    return PartOutcome(part.next_offset, *ends, error=None if part.problem is None else _error(part.problem))


def _error(problem: Problem) -> TidelogError:
    return error_of_problem(problem.status, problem, RETRY_AFTER_S) or Unavailable(problem.detail or problem.code)


class _Records:
    """Decodes the records of a stream once, and cuts them by partition."""

    def __init__(self, stream: pa.RecordBatchReader) -> None:
        self._stream = stream

    def of(self, partition: TopicPartition) -> pa.Table:
        """The records of `partition` with `RECORD_SCHEMA`. Raises `Corrupt`."""
        return pa.Table.from_batches(self._by_partition.get(partition, []), RECORD_SCHEMA)

    @cached_property
    def _by_partition(self) -> Mapping[TopicPartition, list[pa.RecordBatch]]:
        found: dict[TopicPartition, list[pa.RecordBatch]] = {}
        try:
            for batch in self._stream:
                for partition, piece in _pieces(batch):
                    found.setdefault(partition, []).append(piece)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise Corrupt("the broker's answer", f"its records cannot be decoded ({error})") from error
        return found


def _pieces(batch: pa.RecordBatch) -> list[tuple[TopicPartition, pa.RecordBatch]]:
    """The records of a batch by partition. They are sorted by it, so each piece is a slice."""
    topics, numbers = batch.column("topic"), batch.column("partition").to_numpy()
    kinds = np.asarray(topics.indices) if isinstance(topics, pa.DictionaryArray) else None
    if kinds is None:
        kinds = topics.dictionary_encode().indices.to_numpy()
    firsts = np.flatnonzero(np.diff(numbers) | np.diff(kinds)) + 1
    records = batch.select(RECORD_SCHEMA.names)
    bounds = [0, *firsts.tolist(), batch.num_rows] if batch.num_rows else [0]
    return [
        (TopicPartition(topics[start].as_py(), int(numbers[start])), records.slice(start, end - start))
        for start, end in pairwise(bounds)
    ]
