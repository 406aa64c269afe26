"""A fetch of many partitions as a peer's request and answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from tidelog.services.broker.api.fetch import Anchor, Fetched, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.peers.arrow_bodies import decode_parts
from tidelog.storage.errors import Corrupt, TidelogError, Unavailable
from tidelog.wire.errors import RETRY_AFTER_S, Problem, error_of_problem
from tidelog.wire.polls import PartRequest, PartsAnswer, PartsRequest, PartState

FETCH_PARTS = "/v1/fetch"

_STATE = msgspec.json.Decoder(PartsAnswer)


def parts_request(parts: Sequence[FetchPart], limits: FetchLimits) -> PartsRequest:
    return PartsRequest(
        tuple(
            PartRequest(
                part.topic,
                part.partition,
                part.offset if isinstance(part.offset, int) else position_text(part.offset),
                part.max_bytes,
            )
            for part in parts
        ),
        limits.max_bytes,
        limits.max_records,
        limits.wait_ms,
        limits.fresh,
    )


def position_text(position: Position) -> str:
    """`position` as text, as the interface defines it."""
    match position.anchor:
        case Anchor.FROM_END:
            return f"-{position.value}"
        case Anchor.TIMESTAMP:
            return f"@{position.value}"
        case Anchor.EARLIEST | Anchor.LATEST:
            return position.anchor.name.lower()
    return str(position.value)


def read_parts(parts: Sequence[FetchPart], body: bytes) -> Sequence[FetchedPart]:
    """The answers for `parts` in a peer's `body`. Raises `Corrupt`."""
    text, records = decode_parts(body)
    try:
        states = _STATE.decode(text).partitions
    except msgspec.MsgspecError as error:
        raise Corrupt("a peer's answer", f"its state cannot be read ({error})") from error
    if [(state.topic, state.partition) for state in states] != [(part.topic, part.partition) for part in parts]:
        raise Corrupt("a peer's answer", "it is not about the partitions that were asked for")
    batches: defaultdict[tuple[str, int], list[pa.RecordBatch]] = defaultdict(list)
    for part in records:
        batches[part.topic, part.partition] += part.batches
    return [
        _fetched_part(part, state, batches[part.topic, part.partition])
        for part, state in zip(parts, states, strict=True)
    ]


def _fetched_part(part: FetchPart, state: PartState, batches: Sequence[pa.RecordBatch]) -> FetchedPart:
    if state.problem:
        return FetchedPart(part, None, _error(state.problem))
    if state.next_offset is None:
        raise Corrupt("a peer's answer", "a partition has no next_offset")
    looked_up = part if isinstance(part.offset, int) else replace(part, offset=_begin(state.next_offset, batches))
    if state.cold:
        return FetchedPart(looked_up, None, cold=True)
    if state.log_start_offset is None or state.high_watermark is None:
        raise Corrupt("a peer's answer", "a partition has no ends")
    ends = (state.log_start_offset, state.high_watermark, state.cold_end)
    return FetchedPart(looked_up, Fetched(batches, state.next_offset, *ends))


def _begin(next_offset: int, batches: Sequence[pa.RecordBatch]) -> int:
    """The offset of the first of `batches`, `next_offset` if there is none."""
    return int(batches[0].column("offset")[0].as_py()) if batches else next_offset


def _error(problem: Problem) -> TidelogError:
    return error_of_problem(problem.status, problem, RETRY_AFTER_S) or Unavailable(problem.detail)
