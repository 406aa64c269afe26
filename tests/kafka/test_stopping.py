"""Long polls of members of groups end when the broker stops, so that its clients go to another coordinator at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, nested_of, request_of

JOIN_GROUP, DESCRIBE_GROUPS = 11, 15
AN_HOUR = timedelta(hours=1)


def join_request() -> Any:
    """In version 3: a new member joins without asking for its id first."""
    (protocol,) = nested_of(JOIN_GROUP, 3, "JoinGroupRequestProtocol")
    return request_of(
        JOIN_GROUP, 3, group_id="readers", session_timeout=timedelta(seconds=30), rebalance_timeout=AN_HOUR,
        member_id="", protocol_type="consumer", protocols=(protocol(name="range", metadata=b""),),
    )  # fmt: skip


async def state_of_group(client: KioClient) -> str:
    answer = await client.ask(request_of(DESCRIBE_GROUPS, 5, groups=("readers",), include_authorized_operations=False))
    return str(answer.groups[0].group_state)


async def test_a_join_that_waits_is_answered_when_the_broker_stops(client: KioClient, served: KafkaServed) -> None:
    sent_id = client.send(join_request())
    other = await served.connect()
    while await state_of_group(other) != "PreparingRebalance":
        pass
    await other.aclose()
    served.door.drain()
    answer = await client.answer_to(join_request(), sent_id)
    assert answer.error_code == ErrorCode.coordinator_not_available
