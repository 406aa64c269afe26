"""The resources that have configs, and what all requests to them share."""

from __future__ import annotations

from enum import IntEnum

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.refusals import Refused


class Resource(IntEnum):
    """ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


LISTED = tuple(Resource)
"""The types that ListConfigResources knows."""


def no_such_resource(kind: int) -> Refused:
    """The refusal of a kind of resource that has no configs here."""
    text = f"resources of type {kind} have no configs here: topics (2) and brokers (4) have"
    return Refused(ErrorCode.invalid_request, text)


def fixed_broker() -> Refused:
    """The refusal of changes to a broker."""
    text = "the settings of a broker are read when it starts: change them there, and restart it"
    return Refused(ErrorCode.policy_violation, text)
