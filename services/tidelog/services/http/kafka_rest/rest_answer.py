"""Answers without records, and the parts of a request that several calls read."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import MANAGEMENT
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.errors import Unreadable

OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
_ENCODER = msgspec.json.Encoder()
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def rest_answer(answer: object, media_type: str = MANAGEMENT, status: int = 200) -> Response:
    """The response with `answer` as JSON."""
    return Response(_ENCODER.encode(answer), status, media_type=media_type)


async def topic_of(broker: Broker, context: RequestContext, name: str) -> Topic:
    """The topic. Raises `RestError` (40401)."""
    try:
        return await broker.known_topic(context, name)
    except (NotFound, Invalid) as error:
        raise RestError(Code.TOPIC_NOT_FOUND, f"Topic not found. {error}") from None


def topic_name(request: Request) -> str:
    name: str = request.path_params["topic"]
    return name


def partition_number(request: Request) -> int:
    """The partition in the path. Raises `RestError`: 404 if it is no number, 40402 if no partition can have it."""
    text: str = request.path_params["partition"]
    if not _NUMBER.fullmatch(text):
        raise RestError(Code.NOT_FOUND, f"a partition is a number, not {text[:80]!r}")
    number = int(text)
    if not 0 <= number <= PARTITION_MAX:
        raise RestError(Code.PARTITION_NOT_FOUND, f"Partition not found. There is no partition {text}")
    return number


def check_partition(topic: Topic, number: int) -> None:
    """Raises `RestError` (40402)."""
    if number >= topic.partition_count:
        raise RestError(
            Code.PARTITION_NOT_FOUND,
            f"Partition not found. Topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {number}",
        )


def query_number(request: Request, name: str, low: int, high: int) -> int | None:
    """A number in the query; None without it. Other parameters are ignored, as by other proxies. Raises
    `Unreadable`."""
    raw: bytes = request.scope["query_string"]
    if not raw:
        return None
    text = dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)).get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise Unreadable(f"{name} is a whole number from {low} to {high}, not {text[:80]!r}", field=name)
    return int(text)
