"""Answers calls on one partition here, or forwards them to the broker that leads its shard.

    this broker leads the shard    it answers
    another broker leads it        forward the request, its body as it arrives; pass the answer back the same way

A request is forwarded once: a broker answers or refuses the request of a peer. While a shard moves it may have no
leader, or the leader may have just changed. Then the request is tried again when routes change, for
``forward.timeout.ms``. Only a request that is safe to repeat is tried again: it was not applied, it only reads, or the
log applies it once (inv. 7).

    the peer refuses: not_leader, leader_unknown           not applied                       try again
    not reached, or lost before the body was complete      not applied                       try again
    lost after that, or silent for too long                a read, or a producer's sequence  try again
                                                           otherwise                         503 unavailable
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.cluster import Leader, Route
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.bodies.kept_body import KeptBody
from tidelog.services.http.forwarding.forwarded_answer import ForwardedAnswer
from tidelog.services.http.forwarding.hop_headers import answer_headers, request_headers
from tidelog.services.http.forwarding.leader_search import LeaderSearch
from tidelog.services.http.forwarding.leader_watch import STREAM_CHECK_EVERY_S, LeaderWatch
from tidelog.services.http.forwarding.partition_calls import Append, LocalRead, PartitionRef, Read
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.media import body_encoding
from tidelog.services.http.service import Service
from tidelog.services.peers.pool import PeerAnswer, PeerPool, PeerRequest, error_of
from tidelog.storage.errors import LeaderUnknown, NotFound, NotLeader, Overloaded, TidelogError, Unavailable
from tidelog.wire.headers import LEADER

RETRY_AFTER_S = 0.1
LAST_READ_S = 1.0
"""How long a stopping broker waits for the leader's answer when it ends a long poll early."""
COMMIT_MARGIN_S = 5.0
"""How long the answer to a produce may take beyond the bound for a commit."""
WHOLE_BYTES_MAX = 1 << 16
"""A smaller answer is read before it is sent, so that the request can be repeated, and is sent in one write."""


class Forwarding:
    """The calls on partitions, for a broker with peers. The owner of `pool` closes it."""

    def __init__(self, service: Service, pool: PeerPool) -> None:
        settings = service.settings
        self._service = service
        self._broker = service.broker
        self._clock = service.runtime.clock
        self._pool = pool
        self._search_timeout_s = settings.forward_timeout_ms / 1000
        self._produce_timeout_s = settings.commit_timeout_ms / 1000 + COMMIT_MARGIN_S
        self._own_address = settings.own_address

    async def produce(
        self, request: Request, ref: PartitionRef, query: Mapping[str, str], *, sequenced: bool, append: Append
    ) -> Response:
        """Answer a produce. `sequenced`: it has a producer's sequence, so it is safe to repeat."""
        bodies = self._service.bodies
        with bodies.in_flight(self._service.body_limit_bytes(request)) as held:
            body = KeptBody(bodies, request, held)

            async def attempt() -> Response:
                route = self._route(request, ref)
                if self._answered_here(request, route):
                    address = self._address(request, ref, route)
                    plain = await bodies.decompressed(await body.whole(), body_encoding(request), held)
                    return self._with_leader(request, await append(plain, held), ref, address)
                return await self._produced_there(request, ref, query, body, _leader(route), sequenced=sequenced)

            return await self._search(request).run(attempt)

    async def _produced_there(
        self,
        request: Request,
        ref: PartitionRef,
        query: Mapping[str, str],
        body: KeptBody,
        leader: Leader,
        *,
        sequenced: bool,
    ) -> Response:
        content = await body.begun()
        size_bytes = len(content) if isinstance(content, bytes) else body.size_bytes
        headers = request_headers(request)
        sent = PeerRequest("POST", ref.target("records", query), context_of(request), headers, content, size_bytes)
        try:
            return await self._relayed(leader, ref, sent, self._produce_timeout_s)
        except (NotLeader, LeaderUnknown):
            raise
        except Unavailable as error:
            if body.failure:
                raise body.failure from error
            if sequenced or not body.handed_over:
                raise _lost(leader, error) from error
            raise

    async def read(self, request: Request, read: Read, local: LocalRead) -> Response:
        """Answer a read."""
        began_s = self._clock.monotonic()

        async def attempt() -> Response:
            left_ms = max(0, read.wait_ms - int((self._clock.monotonic() - began_s) * 1000))
            route = await self._route_of_read(request, read)
            if self._answered_here(request, route):
                address = self._address(request, read.ref, route)
                return self._with_leader(request, await local(left_ms), read.ref, address)
            return await self._read_there(request, read, left_ms, _leader(route))

        return await self._search(request, read.wait_ms).run(attempt)

    async def _read_there(self, request: Request, read: Read, wait_left_ms: int, leader: Leader) -> Response:
        headers = request_headers(request)
        target = read.target(wait_left_ms)
        sent = PeerRequest("GET", target, context_of(request), headers, waits=read.waits, endless=read.stream)
        timeout_s = self._search_timeout_s + wait_left_ms / 1000
        relayed = self._relayed(leader, read.ref, sent, timeout_s)
        try:
            return await (self._service.waiting.hold(request.receive, relayed) if read.waits else relayed)
        except (NotLeader, LeaderUnknown):
            raise
        except Draining:
            return await self._read_without_waiting(request, read, leader)
        except Overloaded:
            raise
        except Unavailable as error:
            raise _lost(leader, error) from error

    async def _read_without_waiting(self, request: Request, read: Read, leader: Leader) -> Response:
        """This broker is stopping: the records that are there now are a complete answer."""
        if read.stream:
            raise _stopping()
        sent = PeerRequest("GET", read.target(0), context_of(request), request_headers(request))
        try:
            async with asyncio.timeout(LAST_READ_S):
                return await self._relayed(leader, read.ref, sent, LAST_READ_S)
        except TimeoutError:
            raise _stopping() from None

    async def _relayed(self, leader: Leader, ref: PartitionRef, sent: PeerRequest, timeout_s: float) -> Response:
        """The leader's answer. Raises `NotLeader` or `LeaderUnknown` if the request was not applied, `Unavailable` if
        that is unknown."""
        self._service.forwarded[sent.method] += 1
        async with LeaderWatch(lambda: self._leads(sent.context, leader, ref)):
            answer = await self._pool.open(leader.address, sent, answer_timeout_s=timeout_s)
        try:
            response = await self._response_of(sent.context, answer, leader, ref)
        except BaseException:
            answer.close()
            raise
        if LEADER not in response.headers:
            response.headers[LEADER] = leader.address
        return response

    async def _response_of(
        self, context: RequestContext, answer: PeerAnswer, leader: Leader, ref: PartitionRef
    ) -> Response:
        size_bytes, headers = answer.body_bytes, answer_headers(answer.raw_headers)
        if answer.status != 503 and (size_bytes is None or size_bytes > WHOLE_BYTES_MAX):
            watch = LeaderWatch(lambda: self._leads(context, leader, ref), STREAM_CHECK_EVERY_S)
            return ForwardedAnswer(self._service.waiting, answer, headers, watch)
        body = await answer.read()
        if answer.status == 503:
            refusal = error_of(answer.status, answer.headers, body)
            if isinstance(refusal, NotLeader | LeaderUnknown):
                raise refusal
        response = Response(body, answer.status)
        response.raw_headers = headers
        return response

    def _search(self, request: Request, wait_ms: int = 0) -> LeaderSearch:
        context, timeout_s = context_of(request), self._search_timeout_s + wait_ms / 1000
        if not context.may_forward:
            return LeaderSearch(self._broker, self._clock, 0.0)
        return LeaderSearch(self._broker, self._clock, context.bounded_s(timeout_s, self._clock.monotonic()))

    def _route(self, request: Request, ref: PartitionRef) -> Route | None:
        """The route of `ref`. None if this broker does not know it: then it answers itself, which refuses the request
        or finds the topic."""
        try:
            return self._broker.route(context_of(request), ref.topic, ref.partition)
        except NotFound:
            return None

    async def _route_of_read(self, request: Request, read: Read) -> Route | None:
        ref = read.ref
        if read.offset is None:
            return self._route(request, ref)
        try:
            return await self._broker.route_fetch(context_of(request), ref.topic, ref.partition, read.offset)
        except NotFound:
            return None

    def _answered_here(self, request: Request, route: Route | None) -> bool:
        """Whether this broker answers itself, instead of forwarding the request to the leader. Raises `LeaderUnknown`
        if there is no leader, `NotLeader` if the request may not be forwarded."""
        if route is None or route.local:
            return True
        leader = _leader(route)
        if not context_of(request).may_forward:
            raise NotLeader(
                f"shard {route.shard} is led by {leader.broker_id}, not by this broker", leader=leader.address
            )
        return False

    def _leads(self, context: RequestContext, leader: Leader, ref: PartitionRef) -> bool:
        try:
            route = self._broker.route(context, ref.topic, ref.partition)
        except TidelogError:
            return False
        return route.leader == leader and not route.local

    def _address(self, request: Request, ref: PartitionRef, route: Route | None) -> str | None:
        """The address of the leader. Answers carry it, so that the client can send its next request there."""
        if route and route.leader is None:  # a cold read is local, but its shard may not be
            route = self._broker.route(context_of(request), ref.topic, ref.partition)
        if route and route.leader:
            return route.leader.address
        return self._own_address if route and route.local else None

    def _with_leader(self, request: Request, response: Response, ref: PartitionRef, address: str | None) -> Response:
        """`response` with the leader's `address`. It is None if the call has just created the topic."""
        if address is None:
            address = self._address(request, ref, self._route(request, ref))
        if address:
            response.headers[LEADER] = address
        return response


def _leader(route: Route | None) -> Leader:
    if route is None or route.leader is None:
        shard = "the shard" if route is None else f"shard {route.shard}"
        raise LeaderUnknown(
            f"no broker leads {shard} at this moment: send the request again", retry_after_s=RETRY_AFTER_S
        )
    return route.leader


def _lost(leader: Leader, error: Unavailable) -> LeaderUnknown:
    return LeaderUnknown(f"the leader {leader.broker_id} was lost: {error}", retry_after_s=RETRY_AFTER_S)


def _stopping() -> Overloaded:
    return Overloaded("the broker is stopping: send the request to another broker", retry_after_s=RETRY_AFTER_S)
