"""ApiVersions: what the broker serves, in every version of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse as OldestAnswer
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from tests.kafka.kio_client import KioClient, framed, parsed, request_of

from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS, PRODUCE

NAMED = {"client_software_name": "tests", "client_software_version": "1.0"}


def asked(version: int, **names: str) -> Any:
    return request_of(API_VERSIONS, version, **(names or NAMED if version >= 3 else {}))


def ranges(answer: Any) -> Mapping[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_all_apis(client: KioClient, version: int) -> None:
    answer = await client.ask(asked(version))
    assert answer.error_code == ErrorCode.none
    assert ranges(answer) == {api.key: (api.advertised_lowest, api.highest) for api in API_TABLE.values()}


async def test_a_later_version_gets_the_oldest_answer_with_the_versions_that_are_served(client: KioClient) -> None:
    later = bytearray(framed(asked(4), 7))
    later[6:8] = (99).to_bytes(2, "big")
    client.writer.write(later + b"")
    found, answer = parsed(await client.frame(), OldestAnswer)
    assert (found, answer.error_code) == (7, ErrorCode.unsupported_version)
    assert ranges(answer) == {API_VERSIONS: (0, 4)}
    assert (await client.ask(asked(4))).error_code == ErrorCode.none, "the connection goes on"


@pytest.mark.parametrize("name", ["", "-tests", "te sts", "tests."])
async def test_the_software_name_follows_kafkas_rule(client: KioClient, name: str) -> None:
    answer = await client.ask(asked(3, client_software_name=name, client_software_version="1"))
    assert answer.error_code == ErrorCode.invalid_request


def test_every_served_version_has_a_schema_and_its_headers_are_those_of_kafka() -> None:
    for api in API_TABLE.values():
        name = api_key_map[api.key]
        assert name.replace("_", "") == api.name.lower()
        for version in range(api.lowest, api.highest + 1):
            path = schema_name_map[name][version][EntityType.request]
            assert request_class(path).__flexible__ == api.is_flexible(version), f"{api.name} {version}"
        assert api.advertised_lowest == (0 if api.key == PRODUCE else api.lowest)


def request_class(path: str) -> Any:
    from pkgutil import resolve_name

    return resolve_name(path)
