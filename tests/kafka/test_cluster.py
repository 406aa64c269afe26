"""The cluster over Kafka's protocol: brokers, coordinators, and the refusal of SASL."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, request_of

from tidelog.services.kafka.protocol.api_table import API_TABLE

DESCRIBE_CLUSTER, FIND_COORDINATOR, SASL_HANDSHAKE, SASL_AUTHENTICATE = 60, 10, 17, 36
GROUP, TRANSACTION, SHARE = 0, 1, 2


def versions(key: int) -> list[int]:
    return list(range(API_TABLE[key].lowest, API_TABLE[key].highest + 1))


@pytest.mark.parametrize("version", versions(DESCRIBE_CLUSTER))
async def test_the_brokers_are_described(client: KioClient, served: KafkaServed, version: int) -> None:
    fenced = {"include_fenced_brokers": False} if version >= 2 else {}
    request = request_of(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True, **fenced)
    answer = await client.ask(request)
    (broker,) = answer.brokers
    assert (broker.host, broker.port, broker.rack) == ("127.0.0.1", served.port, None)
    assert (answer.cluster_id, answer.controller_id) == ("tidelog", broker.broker_id)
    assert answer.cluster_authorized_operations == 8096


async def test_there_are_no_controllers(client: KioClient) -> None:
    request = request_of(DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=2)
    assert (await client.ask(request)).error_code == ErrorCode.mismatched_endpoint_type


async def coordinators(client: KioClient, version: int, key_type: int, *keys: str) -> list[Any]:
    """The coordinator of each key."""
    kind = {"key_type": key_type} if version >= 1 else {}
    if version >= 4:
        return list(
            (await client.ask(request_of(FIND_COORDINATOR, version, coordinator_keys=keys, **kind))).coordinators
        )
    return [await client.ask(request_of(FIND_COORDINATOR, version, key=key, **kind)) for key in keys]


@pytest.mark.parametrize("version", versions(FIND_COORDINATOR))
async def test_the_coordinator_of_a_group_is_a_broker(client: KioClient, served: KafkaServed, version: int) -> None:
    for found in await coordinators(client, version, GROUP, "billing", "shipping"):
        assert (found.error_code, found.host, found.port) == (ErrorCode.none, "127.0.0.1", served.port)


@pytest.mark.parametrize("version", versions(FIND_COORDINATOR)[1:])
async def test_other_coordinators(client: KioClient, version: int) -> None:
    (transaction,) = await coordinators(client, version, TRANSACTION, "t")
    assert transaction.error_code == ErrorCode.none, "InitProducerId refuses the id"
    (share,) = await coordinators(client, version, SHARE, "s")
    assert (share.error_code, share.node_id) == (ErrorCode.invalid_request, -1)


@pytest.mark.parametrize("version", versions(SASL_HANDSHAKE))
async def test_sasl_is_refused(client: KioClient, version: int) -> None:
    answer = await client.ask(request_of(SASL_HANDSHAKE, version, mechanism="PLAIN"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.illegal_sasl_state, ())


@pytest.mark.parametrize("version", versions(SASL_AUTHENTICATE))
async def test_sasl_credentials_are_refused(client: KioClient, version: int) -> None:
    answer = await client.ask(request_of(SASL_AUTHENTICATE, version, auth_bytes=b"\0user\0password"))
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert "PLAINTEXT" in answer.error_message
