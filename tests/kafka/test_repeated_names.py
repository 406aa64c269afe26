"""A request that names the same thing again and again gets one answer for it, so that a small request has no huge
answer."""

from __future__ import annotations

import pytest
from tests.kafka.kio_client import KioClient, nested_of, request_of

AGAIN = 1_000
DESCRIBE_CONFIGS, DESCRIBE_GROUPS, OFFSET_FETCH, CONSUMER_GROUP_DESCRIBE = 32, 15, 9, 69


async def test_a_resource_is_described_once(client: KioClient) -> None:
    (resource,) = nested_of(DESCRIBE_CONFIGS, 4, "DescribeConfigsResource")
    asked = resource(resource_type=4, resource_name="0", configuration_keys=None)
    request = request_of(
        DESCRIBE_CONFIGS, 4, resources=(asked,) * AGAIN, include_synonyms=True, include_documentation=False
    )
    assert len((await client.ask(request)).results) == 1


@pytest.mark.parametrize(
    ("key", "version", "field"), [(DESCRIBE_GROUPS, 5, "groups"), (CONSUMER_GROUP_DESCRIBE, 1, "group_ids")]
)
async def test_a_group_is_described_once(client: KioClient, key: int, version: int, field: str) -> None:
    request = request_of(key, version, include_authorized_operations=False, **{field: ("billing", *("other",) * AGAIN)})
    assert [each.group_id for each in (await client.ask(request)).groups] == ["billing", "other"]


async def test_the_offsets_of_a_group_are_told_once(client: KioClient) -> None:
    (group,) = nested_of(OFFSET_FETCH, 9, "OffsetFetchRequestGroup")
    asked = group(group_id="billing", member_id=None, member_epoch=-1, topics=None)
    request = request_of(OFFSET_FETCH, 9, groups=(asked,) * AGAIN, require_stable=False)
    assert len((await client.ask(request)).groups) == 1
