"""The body of ``POST /v1/fetch`` and its answer in Arrow (`tidelog.wire.polls`).

An answer is one stream, with how far each partition was read in the metadata of its schema. Archived records may follow
as they are stored (`stored_rows`). The fetching thread decompresses and decodes them, while the program works on
earlier records: Arrow does that without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from tidelog.client.connection import Answer
from tidelog.client.consumed import TopicPartition
from tidelog.client.fetched_parts import Body, FetchPlan, PartOutcome
from tidelog.client.stored_rows import stored_rows
from tidelog.storage.errors import Corrupt, TidelogError, Unavailable
from tidelog.storage.records import RECORD_SCHEMA
from tidelog.wire.decoders import json_decoder
from tidelog.wire.errors import RETRY_AFTER_S, Problem, error_of_problem
from tidelog.wire.polls import ARROW_STATE, PartRequest, PartsAnswer, PartsRequest, PartState

_NO_RECORDS = pa.Table.from_batches([], RECORD_SCHEMA)


class Undecodable(Corrupt):
    """Stored records cannot be decoded here. The broker decodes them, or says what is wrong with them, if they are
    fetched as Arrow."""


def fetch_request(plan: FetchPlan, *, max_bytes: int | None, max_records: int | None, wait_ms: int) -> bytes:
    """The body that asks for the partitions of `plan`."""
    parts = tuple(PartRequest(part.partition.topic, part.partition.partition, part.at) for part in plan.parts)
    return msgspec.json.encode(PartsRequest(parts, max_bytes, max_records, wait_ms))


def fetch_answer(answer: Answer) -> tuple[Mapping[TopicPartition, PartOutcome], Body]:
    """How far each partition was read, and the records. Raises `Corrupt`; `Undecodable` if only stored records cannot
    be decoded."""
    body = pa.py_buffer(answer.body)
    try:
        stream = pa.ipc.open_stream(body, options=pa.ipc.IpcReadOptions(use_threads=False))
        state = json_decoder(PartsAnswer).decode((stream.schema.metadata or {})[ARROW_STATE])
    except (pa.ArrowException, KeyError, msgspec.MsgspecError) as error:
        raise Corrupt("the broker's answer", f"does not have the form in docs/http-api.md ({error})") from error
    outcomes = {TopicPartition(part.topic, part.partition): _outcome(part) for part in state.partitions}
    found = {one: pa.Table.from_batches(batches, RECORD_SCHEMA) for one, batches in _by_partition(stream).items()}
    if isinstance(state.stored_bytes, int):
        found |= _stored(body, state.stored_bytes, state)
    size_bytes = sum(records.nbytes for records in found.values())
    return outcomes, Body(size_bytes, lambda partition: found.get(partition, _NO_RECORDS))


def _stored(body: pa.Buffer, stored_bytes: int, state: PartsAnswer) -> Mapping[TopicPartition, pa.Table]:
    try:
        return dict(stored_rows(body.slice(body.size - stored_bytes), state))
    except (pa.ArrowException, OSError, KeyError, ValueError, IndexError) as error:
        raise Undecodable("the broker's answer", f"its stored records cannot be decoded ({error})") from error


def _outcome(part: PartState) -> PartOutcome:
    ends = (-1 if part.high_watermark is None else part.high_watermark, part.log_start_offset or 0)
    return PartOutcome(part.next_offset, *ends, error=None if part.problem is None else _error(part.problem))


def _error(problem: Problem) -> TidelogError:
    return error_of_problem(problem.status, problem, RETRY_AFTER_S) or Unavailable(problem.detail or problem.code)


def _by_partition(stream: pa.RecordBatchReader) -> Mapping[TopicPartition, Sequence[pa.RecordBatch]]:
    found: dict[TopicPartition, list[pa.RecordBatch]] = {}
    try:
        for batch in stream:
            for partition, piece in _pieces(batch):
                found.setdefault(partition, []).append(piece)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise Corrupt("the broker's answer", f"its records cannot be decoded ({error})") from error
    return found


def _pieces(batch: pa.RecordBatch) -> list[tuple[TopicPartition, pa.RecordBatch]]:
    """The records of a batch by partition. They are sorted by it, so each piece is a slice."""
    topics, numbers = batch.column("topic"), np.from_dlpack(batch.column("partition"))
    coded = topics if isinstance(topics, pa.DictionaryArray) else topics.dictionary_encode()
    firsts = np.flatnonzero(np.diff(numbers) | np.diff(np.from_dlpack(coded.indices))) + 1
    records = batch.select(RECORD_SCHEMA.names)
    bounds = [0, *firsts.tolist(), batch.num_rows] if batch.num_rows else [0]
    return [
        (TopicPartition(topics[start].as_py(), int(numbers[start])), records.slice(start, end - start))
        for start, end in pairwise(bounds)
    ]
