"""Compares the leader epoch that a client knows with that of the leader (KIP-320)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.storage.errors import TidelogError

NO_EPOCH = -1


def leader_epoch(broker: Broker, context: RequestContext, topic: str, partition: int) -> int:
    """The epoch in which this broker leads the partition; `NO_EPOCH` if it does not, or there is no such partition."""
    try:
        route = broker.route(context, topic, partition)
    except TidelogError:
        return NO_EPOCH
    return route.epoch if route.local else NO_EPOCH


def epoch_error(known: int, current: int) -> ErrorCode:
    """Why a request of a client that knows the epoch `known` is refused; `ErrorCode.none`: it is not."""
    if NO_EPOCH in (known, current) or known == current:
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if known < current else ErrorCode.unknown_leader_epoch
