"""`tidelog group list | describe | members | seek | delete`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import (
    check_may_ask,
    complain,
    confirm,
    print_answer,
    print_facts,
    print_json,
    print_table,
)
from tidelog.services.cli.deletion import Deletion
from tidelog.services.cli.options import IfExistsOption, JsonOption, YesOption
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from tidelog.client.consumed import TopicPartition
    from tidelog.wire.groups import GroupDescription, TopicPartitions
    from tidelog.wire.polls import LagAnswer, SeekAnswer

GroupArgument = Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP", show_default=False)]
GroupsArgument = Annotated[list[str], typer.Argument(help="Names of groups.", metavar="GROUP...", show_default=False)]
TimesOption = Annotated[
    bool, typer.Option("--times/--no-times", help="Also the lag in time, which may cost a read per partition.")
]
ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        help="earliest, latest, an offset, @TIME, a time ago (-1h), or records from the committed offset (+N, -N).",
        metavar="POSITION",
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", help="Only this topic, or these partitions of it. Repeatable.", metavar="TOPIC[:P,P...]"
    ),
]


def list_groups(broker: BrokerChoice, as_json: JsonOption = False) -> None:
    """List the groups.

    [dim]tidelog group list[/dim]
    """
    with broker.admin() as admin:
        found = admin.groups()
    print_answer(
        found,
        lambda groups: print_table(("group", "kind"), [(one.group, one.kind or "offsets only") for one in groups]),
        as_json=as_json,
    )


def describe(broker: BrokerChoice, name: GroupArgument, times: TimesOption = True, as_json: JsonOption = False) -> None:
    """Show a group: its state and members, and how far it is behind in each partition.

    [dim]tidelog group describe billing[/dim]
    """
    with broker.admin() as admin:
        found, lag = admin.group(name), admin.group_lag(name, times=times)
    if as_json:
        print_json({"group": found, "lag": lag})
        return
    _print_group(found, lag)
    print()
    _print_lag(lag)


def members(broker: BrokerChoice, name: GroupArgument, as_json: JsonOption = False) -> None:
    """Show the members of a group with their partitions.

    [dim]tidelog group members billing[/dim]
    """
    with broker.admin() as admin:
        found = admin.group(name)
    if as_json:
        print_json(found.members)
        return
    rows = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            member.topic_pattern or ",".join(member.topics),
            partitions_text(member.assignment),
        )
        for member in found.members
    ]
    print_table(("member", "instance", "client", "host", "epoch", "subscribed", "partitions"), rows)


def seek(
    broker: BrokerChoice,
    name: GroupArgument,
    to: ToOption,
    topics: TopicsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move the committed offsets of a group that has no members. On a terminal it shows the change and asks.

    Without --topic it moves all partitions that the group has committed.

    [dim]tidelog group seek billing --to -1h --dry-run
    tidelog group seek billing --to earliest --topic web --topic shop:0,2 --yes[/dim]
    """
    whole, some = _sought_partitions(topics or [])
    check_may_ask(yes or dry_run)
    with broker.admin() as admin:
        move = partial(admin.seek_group, name, to, topics=whole, partitions=some)
        if dry_run:
            print_answer(move(dry_run=True), _print_sought, as_json=as_json)
            complain("nothing was changed")
            return
        if not yes:
            with redirect_stdout(sys.stderr):
                _print_sought(move(dry_run=True))
            confirm(f"Move {name} as shown?", otherwise="nothing was changed")
        moved = move()
    print_answer(moved, _print_sought, as_json=as_json)


def delete(
    broker: BrokerChoice,
    names: GroupsArgument,
    yes: YesOption = False,
    if_exists: IfExistsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete groups without members, with their committed offsets. Asks first on a terminal; elsewhere --yes is needed.

    [dim]tidelog group delete billing --yes[/dim]
    """
    check_may_ask(yes)
    with broker.admin() as admin:
        deletion = Deletion(admin.delete_group, "Delete {} and its committed offsets?".format, yes, if_exists)
        deletion.run(names, as_json=as_json)


def partitions_text(partitions: Sequence[TopicPartitions]) -> str:
    """``web:0-3,7 shop:1``"""
    return " ".join(f"{one.topic}:{_ranges_text(sorted(one.partitions))}" for one in partitions if one.partitions)


def time_ago_text(lag_ms: int | None) -> str | None:
    """``2h 5m``; ``0s`` below a second."""
    if lag_ms is None:
        return None
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    left_s, parts = lag_ms // 1_000, []
    for unit, size_s in units:
        if left_s >= size_s:
            parts.append(f"{left_s // size_s}{unit}")
            left_s %= size_s
    return " ".join(parts[:2]) or "0s"


def _ranges_text(numbers: Sequence[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _sought_partitions(topics: Sequence[str]) -> tuple[list[str], list[TopicPartition]]:
    """Whole topics, and single partitions. Raises `Invalid`."""
    from tidelog.client.consumed import TopicPartition

    whole = [text for text in topics if ":" not in text]
    some: list[TopicPartition] = []
    for text in topics:
        topic, colon, numbers = text.partition(":")
        if not colon:
            continue
        listed = numbers.split(",")
        if not topic or not all(number.isascii() and number.isdigit() for number in listed):
            raise Invalid(f"--topic is TOPIC or TOPIC:0,2, not {text!r}", field="topic")
        some += [TopicPartition(topic, int(number)) for number in listed]
    return whole, some


def _print_group(found: GroupDescription, lag: LagAnswer) -> None:
    facts: list[tuple[str, object]] = [
        ("group", found.group),
        ("kind", found.kind or "offsets only"),
        ("state", found.state),
        ("epoch", found.epoch),
        ("assignor", found.assignor or None),
        ("members", len(found.members)),
        ("lag", f"{lag.lag:,} records" + ("" if lag.lag_ms is None else f", {time_ago_text(lag.lag_ms)}")),
    ]
    print_facts(facts)


def _print_lag(lag: LagAnswer) -> None:
    rows = [
        (
            part.topic,
            part.partition,
            part.committed,
            part.log_start_offset,
            part.high_watermark,
            part.lag,
            time_ago_text(part.lag_ms),
            part.member_id or None,
        )
        for part in lag.partitions
    ]
    print_table(("topic", "partition", "committed", "log start", "end", "lag", "time", "member"), rows)


def _print_sought(found: SeekAnswer) -> None:
    rows = [
        (part.topic, part.partition, part.before, part.after, None if part.before is None else part.after - part.before)
        for part in found.partitions
    ]
    print_table(("topic", "partition", "committed", "new", "change"), rows)
