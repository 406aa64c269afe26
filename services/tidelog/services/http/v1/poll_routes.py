"""``POST /v1/groups/{group}/poll``: the one call that a consumer can live on."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.consuming.assigned_partitions import places_of
from tidelog.services.consuming.member_poll import MemberPoll, PolledRecords
from tidelog.services.consuming.member_polls import MemberPolls
from tidelog.services.http.answers.part_answer import PART_MEDIA, part_answer, part_state
from tidelog.services.http.bodies.call_body import read_call
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.listener.waiting_requests import Draining
from tidelog.services.http.media import answer_media
from tidelog.services.http.service import Service
from tidelog.services.http.v1 import openapi_groups
from tidelog.services.http.v1.fetch_routes import wants_base64
from tidelog.services.http.v1.group_routes import group_of, with_client
from tidelog.services.http.v1.parameters import query_of
from tidelog.services.http.v1.part_routes import part_limits
from tidelog.storage.errors import Overloaded
from tidelog.wire.groups import Heartbeat
from tidelog.wire.polls import PollAnswer, PollRequest

RETRY_AFTER_S = 1.0
_REQUEST = msgspec.json.Decoder(PollRequest)


class PollRoutes:
    """The polls of groups' members."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._polls = MemberPolls(service.broker, service.runtime.clock)

    def add_to(self, router: APIRouter) -> None:
        router.add_api_route("/v1/groups/{group}/poll", self.poll, **openapi_groups.POLL)

    async def poll(self, request: Request) -> Response:
        """Join a group, or stay in it; commit what was read; read the records of all assigned partitions. Accept
        selects JSON, JSON lines or Arrow. While the call waits for records, it keeps the member in the group."""
        base64 = wants_base64(query_of(request, frozenset({"encoding"})))
        media = answer_media(request, PART_MEDIA)
        asked = await read_call(self._service.bodies, request, _REQUEST)
        limits = part_limits(self._service, media, asked.max_records, asked.max_bytes, asked.wait_ms)
        polled = await self._held(request, _member_poll(request, asked, limits), leave=asked.leave)
        return await part_answer(request, polled.parts, _poll_answer(polled), media, base64=base64)

    async def _held(self, request: Request, asked: MemberPoll, *, leave: bool) -> PolledRecords:
        context, group = context_of(request), group_of(request)
        if leave:
            return await self._polls.leave(context, group, asked)
        if not asked.limits.wait_ms:
            return await self._polls.poll(context, group, asked)
        try:
            return await self._service.waiting.hold(request.receive, self._polls.poll(context, group, asked))
        except Draining:
            raise Overloaded(
                "the broker is stopping: send the poll again to another broker", retry_after_s=RETRY_AFTER_S
            ) from None


def _member_poll(request: Request, asked: PollRequest, limits: FetchLimits) -> MemberPoll:
    heartbeat = Heartbeat(
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        instance_id=asked.instance_id,
        topics=asked.topics,
        topic_pattern=asked.topic_pattern,
        assignor=asked.assignor,
        session_timeout_ms=asked.session_timeout_ms,
        rack=asked.rack,
    )
    return MemberPoll(
        with_client(request, heartbeat),
        limits,
        asked.offsets,
        asked.commit,
        asked.from_position,
        frozenset(places_of(asked.paused)),
    )


def _poll_answer(polled: PolledRecords) -> PollAnswer:
    member = polled.membership
    return PollAnswer(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        session_timeout_ms=member.session_timeout_ms,
        assignment=member.assignment,
        offsets=tuple(polled.positions),
        partitions=tuple(map(part_state, polled.parts)),
        revoked=tuple(polled.revoked),
    )
