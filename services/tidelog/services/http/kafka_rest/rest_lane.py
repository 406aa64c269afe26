"""Answers the requests of Kafka's REST interface, and passes all others on.

It stands behind the front, which has checked the request and made its context. Errors under these paths have this
interface's form, those of the front as well (`answer_error`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.services.http.front.http_front import AnswerError
from tidelog.services.http.kafka_rest.instances.consumer_calls import ConsumerCalls
from tidelog.services.http.kafka_rest.produce_calls import ProduceCalls
from tidelog.services.http.kafka_rest.read_calls import ReadCalls
from tidelog.services.http.kafka_rest.rest_errors import RestErrorAnswers
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.kafka_rest.seen_address import SeenAddresses
from tidelog.services.http.kafka_rest.topic_calls import TopicCalls
from tidelog.services.http.kafka_rest.v3.cluster_reads import ClusterReads
from tidelog.services.http.kafka_rest.v3.record_stream import RecordStreamCall
from tidelog.services.http.service import Service
from tidelog.storage.errors import Overloaded


class RestLane:
    """Calls the endpoint of this interface, or `inner`. `answer_other`: makes the answers to failed requests of the
    other interfaces."""

    def __init__(self, inner: ASGIApp, service: Service, addresses: SeenAddresses, answer_other: AnswerError) -> None:
        self._inner = inner
        self._answer_other = answer_other
        self._errors = RestErrorAnswers(service.problems)
        self._routes = RestRoutes()
        for calls in (
            TopicCalls(service),
            ProduceCalls(service),
            ReadCalls(service),
            ConsumerCalls(service, addresses),
            ClusterReads(service, addresses),
            RecordStreamCall(service),
        ):
            calls.add_to(self._routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._routes.owns(scope["path"]):
            await self._inner(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await self._routes.find(scope)(request)
        except Exception as error:
            response = self._errors.answer(request, error)
        try:
            await response(scope, receive, send)
        except Overloaded as error:  # `WaitingRequests.hold` had no place; nothing was sent
            await self._errors.answer(request, error)(scope, receive, send)

    def answer_error(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed before it came here, in the form of its interface."""
        answer = self._errors.answer if self._routes.owns(request.scope["path"]) else self._answer_other
        return answer(request, error)
