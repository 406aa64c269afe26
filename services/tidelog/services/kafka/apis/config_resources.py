"""The resources that have configs, and what all requests to them share."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.group_configs import GROUP_CONFIGS
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


_ADJUSTABLE = (Resource.TOPIC, Resource.BROKER, Resource.GROUP)
"""The resources whose configs Kafka changes by both requests."""


def check_named(kind: int, name: str) -> None:
    """Raises `Refused` for a kind of resource that does not exist, and for one without a name."""
    if kind not in LISTED:
        raise Refused(ErrorCode.invalid_request, f"there are no resources of type {kind}")
    if not name:
        raise Refused(ErrorCode.invalid_request, f"the resource of type {kind} has no name: give one")


def check_own(name: str, own: int) -> None:
    """Raises `Refused` unless `name` is that of this broker, which has the number `own`."""
    if name != str(own):
        raise Refused(ErrorCode.invalid_request, f"this is broker {own}: ask broker {name[:40]} itself")


def fixed(kind: int, name: str, configs: Collection[str], own: int) -> Refused:
    """The refusal of changes to a resource that is not a topic. `own`: the number of this broker."""
    if kind not in _ADJUSTABLE:
        return Refused(ErrorCode.invalid_request, f"resources of type {kind} have no configs to change")
    if kind == Resource.BROKER and name not in {"", str(own)}:
        return Refused(ErrorCode.invalid_request, f"this is broker {own}: ask broker {name[:40]} itself")
    if kind == Resource.GROUP and not name:
        return Refused(ErrorCode.invalid_request, "the group has no name: give one")
    if kind == Resource.GROUP and not set(configs) <= GROUP_CONFIGS.keys():
        return Refused(ErrorCode.invalid_config, f"a group has only the configs {', '.join(GROUP_CONFIGS)}")
    text = "brokers and groups take their configs from the broker's settings when it starts: change them there"
    return Refused(ErrorCode.policy_violation, text)
