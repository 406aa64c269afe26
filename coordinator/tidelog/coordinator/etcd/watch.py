"""One watch: every change from a revision on, each once and in order, across failures of members and connections.

The watch opens a stream on the current member. When the stream ends, the next one begins at the revision that was
reached, so the caller sees one continuous stream. Three hazards:

- **A delete at the very revision that was compacted.** Older etcd forgets it and still lets a watch begin there.
  Defence: each stream begins one revision early and skips what the caller has seen; then etcd reports the revision as
  compacted.
- **A store that went back** (wiped or restored). etcd would wait silently until the old revision comes again. Defence:
  if a member is behind what the watch has seen, a linearizable read decides whether it lags or the store is another
  one.
- **A silent member** (paused or cut off). Defence: it must confirm each stream within the time of one try, it is left
  when any call on it fails, it must answer gRPC's pings, and it ends its streams when it has no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.calls import Calls
from tidelog.coordinator.etcd.conversion import end_of, item_of, start_of
from tidelog.coordinator.etcd.endpoints import Endpoint
from tidelog.coordinator.etcd.errors import CallFailed, Effect, no_answer, watch_cancelled, watch_compacted
from tidelog.coordinator.etcd.incarnations import KnownState
from tidelog.coordinator.etcd.rpc import WATCH, Metadata
from tidelog.coordinator.etcd.streams import OpenStream, opened
from tidelog.coordinator.kv.key_value import EventKind, WatchBatch, WatchEvent
from tidelog.storage.backoff import Backoff

_BACKOFF = Backoff(first_s=0.05, max_s=1.0)
_TOKENS_REJECTED_MAX = 2
"""The most rejected tokens in a row: the first one may have expired."""

_WatchStream = OpenStream[pb.WatchRequest, pb.WatchResponse]


class Watch:
    """See the module docstring. Can be iterated once."""

    def __init__(self, calls: Calls, prefix: str, from_revision: int) -> None:
        self._calls = calls
        self._prefix = prefix
        self._next_revision = max(1, from_revision)
        self._begun: KnownState | None = calls.incarnations.known
        self._failures = 0
        self._tokens_rejected = 0

    async def batches(self) -> AsyncGenerator[WatchBatch]:
        """The changes, until closed. Raises `Compacted`, `Denied`, and `Unavailable` when the store is closed."""
        while True:
            endpoint = self._calls.endpoints.current
            try:
                async with aclosing(self._stream(endpoint)) as stream:
                    async for batch in stream:
                        yield batch
            except CallFailed as failed:
                if failed.effect is Effect.TOKEN_REJECTED:
                    self._tokens_rejected += 1
                if failed.effect is Effect.FINAL or self._tokens_rejected >= _TOKENS_REJECTED_MAX:
                    raise failed.error from None
                self._calls.endpoints.leave(endpoint, str(failed))
            self._failures += 1
            await self._calls.runtime.clock.sleep(_BACKOFF.delay_s(self._failures, self._calls.runtime.entropy))

    async def _stream(self, endpoint: Endpoint) -> AsyncGenerator[WatchBatch]:
        calls = self._calls
        metadata = await calls.prepare(endpoint, calls.try_s)
        with opened(calls.endpoints, endpoint, WATCH, metadata) as stream:
            created = await self._created(endpoint, stream)
            self._raise_if_cancelled(created, endpoint, metadata)
            await self._check_same_store(created)
            self._failures = self._tokens_rejected = 0
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
            raise no_answer(endpoint.target, "no confirmation of a watch", self._calls.try_s) from None

    def _raise_if_cancelled(self, response: pb.WatchResponse, endpoint: Endpoint, metadata: Metadata) -> None:
        if response.compact_revision:
            raise watch_compacted(self._next_revision)
        if response.canceled:
            failed = watch_cancelled(response.cancel_reason, endpoint.target)
            if failed.effect is Effect.TOKEN_REJECTED:
                self._calls.tokens.forget(metadata)
            raise failed

    async def _check_same_store(self, created: pb.WatchResponse) -> None:
        """Raises `Compacted` (as `CallFailed`) if the store went back: the earlier changes are lost."""
        incarnations, reached = self._calls.incarnations, created.header.revision
        incarnations.observe(created.header, begun=None, linearizable=False)
        if reached < self._next_revision - 1:
            reached = (await self._calls.current_state()).revision
        now = incarnations.known
        self._begun = self._begun or now
        is_another = now is not None and self._begun is not None and now.incarnation != self._begun.incarnation
        if is_another or reached < self._next_revision - 1:
            raise watch_compacted(self._next_revision)

    def _batch(self, response: pb.WatchResponse) -> WatchBatch | None:
        """The new changes in `response`. The header's revision may be ahead of events that are still to come, so it is
        used only in a response without events: a progress notice."""
        events = [_event(each) for each in response.events if each.kv.mod_revision >= self._next_revision]
        reached = response.events[-1].kv.mod_revision if response.events else response.header.revision
        if reached < self._next_revision:
            return None
        self._next_revision = reached + 1
        return WatchBatch(reached, events)


def _event(event: pb.Event) -> WatchEvent:
    return WatchEvent(EventKind.DELETE if event.type == pb.Event.DELETE else EventKind.PUT, item_of(event.kv))
