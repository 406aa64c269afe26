"""`tidelog cluster info | drain | upgrade | health`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import (
    complain,
    confirm,
    print_answer,
    print_facts,
    print_json,
    print_table,
    size_text,
    time_text,
)
from tidelog.services.cli.exit_codes import UNAVAILABLE
from tidelog.services.cli.options import JsonOption, YesOption
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import SystemClock, pause

if TYPE_CHECKING:
    from tidelog.client import Admin, ClusterDescription, MembershipDescription

DRAIN_POLL_S = 0.25

BrokerArgument = Annotated[str, typer.Argument(help="The broker's id, as `cluster info` shows it.", metavar="BROKER")]
UndoOption = Annotated[bool, typer.Option("--undo", help="End the drain: let it lead shards again.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return once other brokers lead its shards.")]
LevelOption = Annotated[
    int | None, typer.Option("--level", help="Default: the highest that all brokers know.", metavar="N", min=1)
]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait with --wait.", metavar="S")]


def info(broker: BrokerChoice, as_json: JsonOption = False) -> None:
    """Show the cluster: its brokers, its shards with their leaders and epochs, and how evenly they are led.

    [dim]tidelog cluster info --json[/dim]
    """
    with broker.admin() as admin:
        found = admin.cluster()
    print_answer(found, lambda cluster: _print_cluster(cluster, broker.addresses), as_json=as_json)


def drain(
    broker: BrokerChoice,
    broker_id: BrokerArgument,
    undo: UndoOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = 60.0,
) -> None:
    """Move all shards of a broker to other brokers. It leads none until it restarts.

    Do this before you remove a broker for good.

    [dim]tidelog cluster drain broker-2 --wait
    tidelog cluster drain broker-2 --undo[/dim]
    """
    with broker.admin() as admin:
        admin.drain(broker_id, undo=undo)
        if undo:
            print(f"{broker_id} may lead shards again")
        elif wait:
            _await_drained(admin, broker_id, timeout_s)
            print(f"{broker_id} leads no shard")
        else:
            print(f"{broker_id} is draining: it still leads {admin.cluster().cluster.led_by(broker_id)} shards")


def upgrade(broker: BrokerChoice, level: LevelOption = None, yes: YesOption = False) -> None:
    """Let brokers write the formats of a later feature level, once all of them run a version that knows it.

    There is no way back: a broker of an earlier version refuses to start from then on.

    [dim]tidelog cluster upgrade[/dim]
    """
    with broker.admin() as admin:
        found = admin.cluster().cluster
        known = min((member.feature_level for member in found.brokers), default=found.feature_level)
        wanted = known if level is None else level
        if wanted == found.feature_level:
            print(f"the cluster is at feature level {wanted}; its brokers know up to {known}")
            return
        if not yes:
            confirm(f"Raise the feature level from {found.feature_level} to {wanted}, for ever?")
        admin.raise_feature_level(wanted)
        print(f"raised the feature level from {found.feature_level} to {wanted}")


def health(broker: BrokerChoice, as_json: JsonOption = False) -> None:
    """Show whether the broker takes requests. Exit code 3 if it does not.

    [dim]tidelog cluster health --broker http://10.0.0.7:8080[/dim]
    """
    with broker.admin() as admin:
        found = admin.health()
    if as_json:
        print_json(found)
    elif found.ready:
        print(f"{broker.addresses} is ready")
        if found.reason:
            complain(found.reason)
        for key in found.damaged_objects:
            complain(f"damaged object: {key}; see `tidelog bucket repair`")
    else:
        complain(found.reason)
    if not found.ready:
        raise typer.Exit(UNAVAILABLE)


def balance_text(members: MembershipDescription) -> str:
    """The most and the fewest shards that one broker leads, the fair share, and the shards without a leader. Brokers
    that drain do not count."""
    led = [members.led_by(member.broker) for member in members.brokers if not member.draining]
    if not led:
        return "no broker may lead any"
    fair = len(members.shards) / len(led)
    text = f"most {max(led)}, fewest {min(led)}, fair {fair:.1f}"
    if without := sum(shard.leader is None for shard in members.shards):
        text += f"; {without} without a leader"
    if moving := sum(shard.leader not in (None, shard.preferred) for shard in members.shards):
        text += f"; {moving} to move"
    return text


def _print_cluster(found: ClusterDescription, broker: str) -> None:
    members = found.cluster
    in_cluster = members.coordinator != "embedded"
    facts: list[tuple[str, object]] = [("broker", broker), ("version", found.version), ("store", found.store)]
    facts.append(("groups", f"coordinates {found.groups}, with {found.group_members} members"))
    if in_cluster:
        facts.append(("cluster", f"{members.name} ({members.cluster_id})"))
        facts.append((members.coordinator, members.trouble or "healthy"))
        facts.append(("feature level", members.feature_level))
        facts.append(("shards a broker", balance_text(members)))
    if found.reason:
        facts.append(("limited" if found.ready else "not ready", found.reason))
    facts += [("damaged", f"{damage.object} {damage.reason}. {damage.effect}") for damage in found.damage]
    print_facts(facts)
    if in_cluster:
        _print_members(members)
        _print_placement(members)
    _print_shards(found)


def _await_drained(admin: Admin, broker_id: str, timeout_s: float) -> None:
    """Return once `broker_id` leads no shard; print on stderr how many are left. `Unavailable` after `timeout_s`."""
    clock = SystemClock()
    give_up_at_s = clock.monotonic() + timeout_s
    left = printed = -1
    while left:
        left = admin.cluster().cluster.led_by(broker_id)
        if left != printed:
            print(f"{left} shards to go", file=sys.stderr)
            printed = left
        if left and clock.monotonic() > give_up_at_s:
            raise Unavailable(f"{broker_id} still leads {left} shards after {timeout_s:g} s: it continues to drain")
        if left:
            pause(DRAIN_POLL_S)


def _print_members(members: MembershipDescription) -> None:
    print()
    rows = [
        (m.broker, m.address, m.zone, m.version, time_text(m.started_at_ms), m.shards, m.draining)
        for m in members.brokers
    ]
    print_table(("broker", "address", "zone", "version", "started", "shards", "draining"), rows)


def _print_placement(members: MembershipDescription) -> None:
    print()
    rows = [(shard.shard, shard.leader, shard.epoch, shard.preferred) for shard in members.shards]
    print_table(("shard", "leader", "epoch", "preferred"), rows)


def _print_shards(found: ClusterDescription) -> None:
    """The shards that the asked broker leads."""
    print()
    rows = [
        (
            shard.shard,
            shard.leading,
            shard.epoch,
            shard.partitions,
            shard.wal_floor,
            shard.wal_next,
            size_text(shard.wal_bytes),
            size_text(shard.buffered_bytes),
        )
        for shard in found.shards
    ]
    print_table(("shard", "leading", "epoch", "partitions", "wal floor", "wal next", "wal size", "buffered"), rows)
