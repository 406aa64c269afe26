"""UpdateFeatures (57): refused, because the cluster has none of Kafka's features; ApiVersions names none."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.update_features.v1.request import UpdateFeaturesRequest
from kio.schema.update_features.v1.response import UpdateFeaturesResponse

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode


class UpdateFeaturesApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, UpdateFeaturesRequest)
        code, message = ErrorCode.none, None
        if request.feature_updates:
            named = ", ".join(each.feature[:80] for each in request.feature_updates[:5])
            code, message = ErrorCode.invalid_update_version, f"this cluster has no feature {named}: none was changed"
        answer = UpdateFeaturesResponse(throttle_time=NO_TIME, error_code=code, error_message=message, results=())
        return encode(call, answer)
