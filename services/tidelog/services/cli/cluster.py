"""`tidelog cluster info | drain | health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.console import complain, print_facts, print_json, print_table, size_text, time_text
from tidelog.services.cli.exit_codes import UNAVAILABLE
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption

if TYPE_CHECKING:
    from tidelog.client import ClusterDescription, MembershipDescription

BrokerArgument = Annotated[str, typer.Argument(help="The broker's id, as `cluster info` shows it.", metavar="BROKER")]
UndoOption = Annotated[bool, typer.Option("--undo", help="Let it lead shards again.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return once its shards have gone.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait with --wait.", metavar="S")]


def info(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the cluster: brokers, shards, who leads them in which epoch, and how even that is.

    [dim]tidelog cluster info --json[/dim]
    """
    from tidelog.client import Admin

    with Admin(broker) as admin:
        found = admin.cluster()
    if as_json:
        print_json(found)
        return
    members = found.cluster
    facts: list[tuple[str, object]] = [("broker", broker), ("version", found.version), ("store", found.store)]
    if members.coordinator != "embedded":
        facts.append(("cluster", f"{members.name} ({members.cluster_id})"))
        facts.append((members.coordinator, members.trouble or "healthy"))
        facts.append(("shards a broker", balance_text(members)))
    if found.reason:
        facts.append(("not ready", found.reason))
    facts += [("damaged", f"{damage.object} {damage.reason}. {damage.effect}") for damage in found.damage]
    print_facts(facts)
    if members.coordinator != "embedded":
        _print_members(members)
        _print_placement(members)
    _print_shards(found)


def drain(
    broker_id: BrokerArgument,
    broker: BrokerOption = DEFAULT_BROKER,
    undo: UndoOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = 60.0,
) -> None:
    """Move all shards of a broker to the others, and let it lead nothing until it starts again.

    Do this before you take a broker away for good.

    [dim]tidelog cluster drain broker-2 --wait
    tidelog cluster drain broker-2 --undo[/dim]
    """
    from tidelog.client import Admin

    with Admin(broker) as admin:
        admin.drain(broker_id, undo=undo)
        if undo:
            print(f"{broker_id} may lead shards again")
        elif wait:
            from tidelog.services.cli.draining import await_drained

            await_drained(admin, broker_id, timeout_s)
            print(f"{broker_id} leads nothing")
        else:
            print(f"{broker_id} is draining: it leads {admin.cluster().cluster.led_by(broker_id)} shards still")


def health(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Say whether the broker lives and takes requests; exit code 3 if not.

    [dim]tidelog cluster health --broker http://10.0.0.7:8080[/dim]
    """
    from tidelog.client import Admin

    with Admin(broker) as admin:
        found = admin.health()
    if as_json:
        print_json(found)
    elif found.ready:
        print(f"{broker} is ready")
        for key in found.damaged_objects:
            complain(f"damaged object: {key}; see `tidelog bucket repair`")
    else:
        complain(found.reason)
    if not found.ready:
        raise typer.Exit(UNAVAILABLE)


def balance_text(members: MembershipDescription) -> str:
    """The most and the fewest shards that a broker leads, what is fair, and how many nobody leads. Brokers that drain
    do not count."""
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
    """What the asked broker leads."""
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
