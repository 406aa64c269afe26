"""Appends small requests that arrive together by one call on the broker.

A call of `Broker.produce` makes and checks Arrow columns and is committed, which takes longer for one record than
everything else. Many clients that send one record each send at about the same time, because the commit that answers one
answers all. So the requests for one topic or partition and from one principal are appended together, in their order:

- A request that finds no call under way is appended with all others of the same turn of the event loop.
- Requests that arrive during a call wait for its end, but not longer than `CALL_S`, because one of its partitions may
  be stuck.
- After a call, the clients that it has answered send again. The next call waits for as many requests as those, but not
  longer than `RETURN_S`. Without this wait, the clients fall into two groups that take turns, and each record costs
  twice as much. A client that is alone never waits.

If a record of them is refused, nothing was applied (inv. 10). Then each request is made on its own, so a client gets
only its own refusal.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.bodies.draft_columns import draft_of
from tidelog.services.http.kafka_rest.produce_body import RecordRows
from tidelog.services.http.kafka_rest.record_places import Placed, Places, placed
from tidelog.storage.errors import Invalid, TidelogError

RECORDS_MAX = 1_000
"""A call is made at once when it has so many records."""
CALL_S = 0.02
"""The longest that requests wait for a call under way."""
RETURN_S = 0.003
"""The longest that a call waits for the clients that the call before has answered."""
_Key: TypeAlias = tuple[str, int | None, str, str]


@dataclass
class _Gathering:
    """Requests for one topic or partition. `context`: that of the first."""

    context: RequestContext
    topic: str
    partition: int | None
    requests: list[tuple[RecordRows, asyncio.Future[Places]]] = field(default_factory=list)
    records: int = 0


@dataclass
class _Pace:
    """When the next call for a topic or partition may be made: not during `calls`; then `returning` requests are
    expected until `timer` fires."""

    calls: set[asyncio.Task[Any] | None] = field(default_factory=set)
    returning: int = 0
    timer: asyncio.TimerHandle | None = None


class GatheredProduce:
    """Appends to `broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gatherings: dict[_Key, _Gathering] = {}
        self._paces: dict[_Key, _Pace] = {}

    async def append(self, context: RequestContext, topic: str, partition: int | None, rows: RecordRows) -> Places:
        """The places of the records. Raises like `Broker.produce`."""
        if context.deadline_s is not None or context.from_peer:
            return await self._produce(context, topic, partition, rows)
        key = (topic, partition, context.principal, context.client_id)
        gathering = self._gatherings.get(key)
        if gathering is None:
            gathering = self._gatherings[key] = _Gathering(context, topic, partition)
        answer: asyncio.Future[Places] = asyncio.get_running_loop().create_future()
        gathering.requests.append((rows, answer))
        gathering.records += len(rows.values)
        self._begin_if_due(key, gathering)
        return await answer

    def _begin_if_due(self, key: _Key, gathering: _Gathering) -> None:
        pace, loop = self._paces.get(key), asyncio.get_running_loop()
        if len(gathering.requests) == 1:
            loop.call_later(CALL_S if pace else 0, self._begin, key, gathering)
        if gathering.records >= RECORDS_MAX or (pace and not pace.calls and len(gathering.requests) >= pace.returning):
            self._begin(key, gathering)

    def _begin(self, key: _Key, gathering: _Gathering) -> None:
        if self._gatherings.get(key) is not gathering:
            return
        del self._gatherings[key]
        pace = self._paces.setdefault(key, _Pace())
        if pace.timer:
            pace.timer.cancel()
        pace.calls.add(asyncio.ensure_future(self._call(key, gathering)))

    async def _call(self, key: _Key, gathering: _Gathering) -> None:
        answers = await self._answers(gathering)
        self._end(key, len(answers))
        for (_, future), answer in zip(gathering.requests, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _end(self, key: _Key, answered: int) -> None:
        """This call has ended: expect its clients to return, unless another call is under way."""
        pace, waiting = self._paces[key], self._gatherings.get(key)
        pace.calls.discard(asyncio.current_task())
        if pace.calls:
            return
        pace.returning = answered + (len(waiting.requests) if waiting else 0)
        pace.timer = asyncio.get_running_loop().call_later(RETURN_S, self._expect_no_more, key)

    def _expect_no_more(self, key: _Key) -> None:
        del self._paces[key]
        if waiting := self._gatherings.get(key):
            self._begin(key, waiting)

    async def _answers(self, gathering: _Gathering) -> Sequence[Places | BaseException]:
        """The places of the records of each request, or its error."""
        requests = [rows for rows, _ in gathering.requests]
        try:
            places = await self._append(gathering, _joined(requests))
        except Invalid as error:
            if len(requests) == 1:
                return [error]
            alone = (self._append(gathering, rows) for rows in requests)
            return await asyncio.gather(*alone, return_exceptions=True)
        except Exception as error:
            return [error] * len(requests)
        ends = list(itertools.accumulate(len(rows.values) for rows in requests))
        return [_of_one(places[end - len(rows.values) : end]) for rows, end in zip(requests, ends, strict=True)]

    async def _append(self, gathering: _Gathering, rows: RecordRows) -> Places:
        return await self._produce(gathering.context, gathering.topic, gathering.partition, rows)

    async def _produce(self, context: RequestContext, topic: str, partition: int | None, rows: RecordRows) -> Places:
        draft = draft_of(rows.columns(), rows.size_bytes)
        options = ProduceOptions(partition=partition, tell_each=partition is None)
        appended = await self._broker.produce(context, topic, draft, options)
        return placed(len(rows.values), appended)


def _of_one(places: Places) -> Places | TidelogError:
    """The answer to one request: an error if none of its records is stored."""
    first = places[0]
    return first if isinstance(first, TidelogError) and not any(isinstance(one, Placed) for one in places) else places


def _joined(requests: Sequence[RecordRows]) -> RecordRows:
    """The records of all `requests`, in order."""
    if len(requests) == 1:
        return requests[0]
    counts = [len(rows.values) for rows in requests]
    return RecordRows(
        [value for rows in requests for value in rows.values],
        _chained([rows.keys for rows in requests], counts),
        _chained([rows.partitions for rows in requests], counts),
        _chained([rows.timestamps for rows in requests], counts),
        _chained([rows.headers for rows in requests], counts),
    )


def _chained(lists: Sequence[list[Any] | None], counts: Sequence[int]) -> list[Any] | None:
    if all(one is None for one in lists):
        return None
    chained: list[Any] = []
    for one, count in zip(lists, counts, strict=True):
        chained += [None] * count if one is None else one
    return chained
