"""Requests that cannot be read end their own connection with a reason, and nothing else happens."""

from __future__ import annotations

import logging
import random
import struct

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, framed, request_of
from tests.kafka.test_topics import creation, metadata_request

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS
from tidelog.services.kafka.protocol.request_reading import ENTRIES_MAX

ROUNDS = 400
MANY = ENTRIES_MAX + 1


def header(api_key: int, version: int, client_id: bytes = b"\0\3abc", rest: bytes = b"") -> bytes:
    request = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + b"\0\0\0\1" + client_id + rest
    return len(request).to_bytes(4, "big") + request


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\0\0\0\0", "a request of 0 bytes is shorter than its header"),
        (b"\0\0\0\3abc", "a request of 3 bytes is shorter than its header"),
        (header(999, 0), "'abc' sent API key 999, which this broker does not serve"),
        (header(-1, 0), "'abc' sent API key -1"),
        (header(3, 99), "'abc' sent Metadata version 99, and this broker serves 0 to 13"),
        (header(3, 1, b"\0\x63abc"), "the client id has 99 bytes in a request of"),
        (header(3, 1, b"\xff\xfeabc"), "the client id has -2 bytes in a request of"),
        (header(3, 1, b"\0\2\xff\xff"), "the client id is not UTF-8"),
        (header(3, 12, rest=b"\xff\xff\xff\xff\xff\xff"), "a varint does not end"),
        (header(3, 12, rest=b"\1\0\x7f"), "a tagged field of the header ends beyond the request"),
        (header(3, 1, rest=b"\0\0\0\1"), "an array of 1 entries is in 0 bytes"),
        (header(3, 1, rest=b"\0\0\0\1\0"), "the request is not a MetadataRequest of version 1"),
        (header(3, 1, rest=b"\0\0\0\1\0\1\xff"), "the request is not a MetadataRequest of version 1"),
        (header(3, 1, rest=b"\x7f\xff\xff\xff"), "an array of 2,147,483,647 entries is in 0 bytes"),
        (header(3, 9, rest=b"\0\xff\xff\xff\xff\x0f"), "an array of 4,294,967,294 entries is in 0 bytes"),
        (header(3, 4, rest=b"\0\0\0\1\xff\xff\0"), "name is null"),
        (header(42, 0, rest=b"\xff\xff\xff\xff"), "groups_names is null"),
        (header(42, 0, rest=b"\0\0\0\1\xff\xff"), "an entry of groups_names is null"),
        (header(3, 1, rest=b"\x80\0\0\0"), "a length is -2147483648"),
        (header(3, 1, rest=struct.pack(">i", MANY) + bytes(2 * MANY)), "the request has more than 200,000 entries"),
    ],
)
async def test_the_connection_ends_with_a_reason_and_the_broker_goes_on(
    client: KioClient, served: KafkaServed, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    client.writer.write(sent)
    assert await client.is_ended()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert reason in line.fields["reason"]
    other = await served.connect()
    assert (await other.ask(metadata_request(12, []))).brokers
    await other.aclose()


async def test_tagged_fields_of_the_header_and_the_body_are_skipped(client: KioClient) -> None:
    unknown = b"\2\x64\2hi\x65\0"  # two fields with tags that no version has
    client.writer.write(header(3, 12, rest=unknown + b"\1\0\0" + unknown))
    assert len(await client.frame()) > 8


async def test_bytes_behind_a_request_are_ignored(client: KioClient) -> None:
    """librdkafka writes the number of all topics in four bytes, also where one is the whole field."""
    for_all_topics = b"\0\0\0\0" + b"\1\0\0"
    client.writer.write(header(3, 12, rest=b"\0" + for_all_topics))
    assert len(await client.frame()) > 8


async def test_a_client_without_an_id_is_answered(client: KioClient) -> None:
    client.writer.write(framed(request_of(API_VERSIONS, 0), 1, client_id=None))
    assert await client.frame()


async def test_damaged_requests_crash_nothing(served: KafkaServed, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes are changed, cut out and inserted in requests of every API."""
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(13)
    whole = [framed(creation(version, "fuzz", 1, configs={"segment.ms": "7"}), 1) for version in (2, 5, 7)]
    whole += [framed(metadata_request(version, ["fuzz", "other"]), 1) for version in range(13)]
    whole += [header(api.key, api.highest, rest=bytes(40)) for api in API_TABLE.values()]
    answered = 0
    for _ in range(ROUNDS):
        client = await served.connect()
        client.writer.write(damaged(chance, chance.choice(whole)))
        answered += not await client.is_ended()
        await client.aclose()
    assert 0 < answered < ROUNDS, "some are still requests"
    client = await served.connect()
    (result,) = (await client.ask(creation(7, "after"))).topics
    assert result.error_code == ErrorCode.none
    assert served.broker.topic(BROKER_ITSELF, "after")
    await client.aclose()


def damaged(chance: random.Random, frame: bytes) -> bytes:
    """`frame` with some changes, and a length that fits."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body))
        match chance.randrange(3):
            case 0:
                body[at] = chance.randrange(256)
            case 1:
                del body[at : at + chance.randint(1, 4)]
            case _:
                body[at:at] = chance.randbytes(chance.randint(1, 4))
        body = body or bytearray(1)
    return len(body).to_bytes(4, "big") + body
