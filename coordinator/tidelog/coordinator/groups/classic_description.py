"""A classic group as it is shown, with the topics and partitions of members that are Kafka consumers."""

from __future__ import annotations

from tidelog.coordinator.groups.classic_rebalance import ClassicRebalance
from tidelog.coordinator.groups.classic_roster import ClassicMember
from tidelog.coordinator.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)
from tidelog.wire.groups import GroupDescription, GroupMemberDescription


def any_subscribes(rebalance: ClassicRebalance, topic: str) -> bool:
    """Whether a member subscribes to `topic`. Members of other protocol types than Kafka's consumers do not; a member
    whose subscription cannot be read may."""
    if rebalance.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    found = [subscribed_topics(_metadata(rebalance, member)) for member in rebalance.roster]
    return any(topics is None or topic in topics for topics in found)


def describe_group(name: str, rebalance: ClassicRebalance) -> GroupDescription:
    return GroupDescription(
        group=name,
        kind="classic",
        state=rebalance.state,
        epoch=rebalance.generation,
        assignor=rebalance.protocol,
        protocol_type=rebalance.protocol_type,
        members=tuple(_described(rebalance, member) for member in rebalance.roster),
    )


def _described(rebalance: ClassicRebalance, member: ClassicMember) -> GroupMemberDescription:
    metadata = _metadata(rebalance, member)
    readable = rebalance.protocol_type == CONSUMER_PROTOCOL_TYPE
    assignment = assigned_partitions(member.stored.assignment) if readable else ()
    return GroupMemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.stored.client_id,
        client_host=member.stored.client_host,
        member_epoch=rebalance.generation,
        topics=tuple(sorted(subscribed_topics(metadata) or ())) if readable else (),
        assignment=assignment,
        target=assignment,
        metadata=metadata,
        assigned=member.stored.assignment,
    )


def _metadata(rebalance: ClassicRebalance, member: ClassicMember) -> bytes:
    """For the chosen protocol; before the first choice, for the one that the member prefers."""
    return member.metadata(rebalance.protocol) or member.stored.protocols[0].metadata
