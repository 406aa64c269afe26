"""ApiVersions (18): which APIs and versions this broker serves.

A request in a version above those served is answered in version 0 with UNSUPPORTED_VERSION and the versions of
ApiVersions itself, so that a newer client asks again (KIP-511).
"""

from __future__ import annotations

import re

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.api_table import API_TABLE, API_VERSIONS, ServedApi
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode, encode_as

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The names and versions of client software that Kafka accepts (KIP-511)."""
_NAMED_SINCE = 3


class ApiVersionsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        own = API_TABLE[API_VERSIONS]
        if not own.serves(call.version):
            return encode_as(API_VERSIONS, 0, _answer(ErrorCode.unsupported_version, own))
        request = decode(call, ApiVersionsRequest)
        if call.version >= _NAMED_SINCE and not _is_named(request):
            return encode(call, _answer(ErrorCode.invalid_request))
        return encode(call, _answer(ErrorCode.none, *API_TABLE.values()))


def _is_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def _answer(error: ErrorCode, *apis: ServedApi) -> ApiVersionsResponse:
    versions = (
        ApiVersion(api_key=api.key, min_version=api.advertised_lowest, max_version=api.highest)
        for api in sorted(apis, key=lambda api: api.key)
    )
    return ApiVersionsResponse(error_code=error, api_keys=tuple(versions), throttle_time=NO_TIME)
