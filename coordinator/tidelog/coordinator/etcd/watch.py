"""One watch: every change from a revision on, each once and in order, whatever happens to members and connections.

A stream is opened on the current member. When it ends, the next one begins at the revision that was reached; so what
comes is as if there were one stream. Three things may not be lost on the way:

- **A delete at the very revision that was compacted.** Older etcd forgets it, and lets a watch begin there. So a stream
  begins one revision early, and what was seen is left out: then etcd says that the revision is compacted.
- **A store that went back** (wiped, or restored) would wait for the old revision to come again and say nothing. So a
  member that is behind what we have seen is checked by a linearizable read: it lags, or the store is another.
- **A silent member** (paused, or cut off). It has to confirm each stream in the time of a try, is left when any call
  fails on it, answers gRPC's pings, and ends its streams when it has no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.calls import Calls
from tidelog.coordinator.etcd.conversion import end_of, event_of, start_of
from tidelog.coordinator.etcd.endpoints import Endpoint
from tidelog.coordinator.etcd.refusals import Refusal, Verdict, refusal_of
from tidelog.coordinator.etcd.rpc import WATCH, Metadata
from tidelog.coordinator.etcd.sightings import Mark
from tidelog.coordinator.etcd.streams import OpenStream, opened
from tidelog.coordinator.kv.key_value import Compacted, WatchBatch
from tidelog.storage.backoff import Backoff
from tidelog.storage.errors import Unavailable

_BACKOFF = Backoff(first_s=0.05, max_s=1.0)
_TOKENS_REFUSED_MAX = 2
"""In a row: the first may have run out."""

_WatchStream = OpenStream[pb.WatchRequest, pb.WatchResponse]


class Watch:
    """See the module's head. To be iterated once."""

    def __init__(self, calls: Calls, prefix: str, from_revision: int) -> None:
        self._calls = calls
        self._prefix = prefix
        self._next_revision = max(1, from_revision)
        self._begun: Mark | None = calls.sightings.mark
        self._failures = 0
        self._tokens_refused = 0

    async def batches(self) -> AsyncGenerator[WatchBatch]:
        """Until closed. Raises `Compacted`, `Denied`, and `Unavailable` when the store is closed."""
        while True:
            endpoint = self._calls.endpoints.current
            try:
                async with aclosing(self._stream(endpoint)) as stream:
                    async for batch in stream:
                        yield batch
            except Refusal as refused:
                if refused.verdict is Verdict.TOKEN_REFUSED:
                    self._tokens_refused += 1
                if refused.verdict is Verdict.FINAL or self._tokens_refused >= _TOKENS_REFUSED_MAX:
                    raise refused.error from None
                self._calls.endpoints.leave(endpoint, str(refused))
            self._failures += 1
            await self._calls.runtime.clock.sleep(_BACKOFF.delay_s(self._failures, self._calls.runtime.entropy))

    async def _stream(self, endpoint: Endpoint) -> AsyncGenerator[WatchBatch]:
        calls = self._calls
        metadata = await calls.prepare(endpoint, calls.try_s)
        with opened(calls.endpoints, endpoint, WATCH, metadata) as stream:
            created = await self._created(endpoint, stream)
            self._raise_if_cancelled(created, endpoint, metadata)
            await self._check_it_is_the_same_store(created)
            self._failures = self._tokens_refused = 0
            while True:
                response = await stream.receive()
                self._raise_if_cancelled(response, endpoint, metadata)
                if batch := self._batch(response):
                    yield batch

    async def _created(self, endpoint: Endpoint, stream: _WatchStream) -> pb.WatchResponse:
        create = pb.WatchCreateRequest(
            key=start_of(self._prefix),
            range_end=end_of(self._prefix),
            start_revision=max(1, self._next_revision - 1),
            progress_notify=True,
        )
        try:
            async with asyncio.timeout(self._calls.try_s):
                await stream.send(pb.WatchRequest(create_request=create))
                return await stream.receive()
        except TimeoutError:
            silent = Unavailable(f"etcd at {endpoint.target} did not confirm a watch in {self._calls.try_s:.1f} s")
            raise Refusal(Verdict.NOT_TAKEN, silent) from None

    def _raise_if_cancelled(self, response: pb.WatchResponse, endpoint: Endpoint, metadata: Metadata) -> None:
        if response.compact_revision:
            kept_from = response.compact_revision + 1
            raise Refusal(Verdict.FINAL, _compacted(self._next_revision, kept_from))
        if response.canceled:
            refused = refusal_of("UNAVAILABLE", response.cancel_reason or "watch cancelled", endpoint.target)
            raise self._with_token_forgotten(refused, response.cancel_reason, metadata)

    def _with_token_forgotten(self, refused: Refusal, reason: str, metadata: Metadata) -> Refusal:
        """A watch is refused with "permission denied" for a token that ran out, too: so another is tried, once."""
        if refused.verdict is not Verdict.TOKEN_REFUSED and "permission denied" not in reason.lower():
            return refused
        self._calls.tokens.forget(metadata)
        return Refusal(Verdict.TOKEN_REFUSED, refused.error)

    async def _check_it_is_the_same_store(self, created: pb.WatchResponse) -> None:
        """Raises the refusal `Compacted`: what happened before is not to be had any more."""
        sightings, reached = self._calls.sightings, created.header.revision
        sightings.note(created.header, begun=None, linearizable=False)
        if reached < self._next_revision - 1:
            reached = (await self._calls.current_state()).revision
        now = sightings.mark
        self._begun = self._begun or now
        is_another = now is not None and self._begun is not None and now.incarnation != self._begun.incarnation
        if is_another or reached < self._next_revision - 1:
            raise Refusal(Verdict.FINAL, _compacted(self._next_revision, reached + 1))

    def _batch(self, response: pb.WatchResponse) -> WatchBatch | None:
        """What is new in it. The header's revision may be ahead of events that are still to come, so it counts only
        when there are none: then it is a progress notice."""
        events = [event_of(each) for each in response.events if each.kv.mod_revision >= self._next_revision]
        reached = response.events[-1].kv.mod_revision if response.events else response.header.revision
        if reached < self._next_revision:
            return None
        self._next_revision = reached + 1
        return WatchBatch(reached, events)


def _compacted(wanted: int, kept_from: int) -> Compacted:
    message = f"changes from revision {wanted} on are not to be had: read the state anew, and watch from there"
    return Compacted(message, oldest_revision=kept_from)
