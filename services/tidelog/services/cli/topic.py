"""`tidelog topic create | list | describe | alter | delete | delete-records`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.console import print_facts, print_json, print_table, time_text
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, TopicArgument
from tidelog.storage.errors import AlreadyExists, Invalid

if TYPE_CHECKING:
    from tidelog.client.descriptions import TopicDescription

NamesArgument = Annotated[list[str], typer.Argument(help="Names of topics.", metavar="TOPIC...", show_default=False)]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-c", help="A topic config, as retention.ms=86400000. Repeatable.", metavar="KEY=VALUE"),
]
PartitionsOption = Annotated[int | None, typer.Option("--partitions", "-p", help="How many partitions.", min=1)]


def create(
    names: NamesArgument,
    partitions: PartitionsOption = None,
    configs: ConfigOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="One that exists is no error.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Create topics."""
    from tidelog.client import Admin

    changes = _configs(configs)
    with Admin(broker) as admin:
        for name in names:
            try:
                created = admin.create_topic(name, partitions, changes)
            except AlreadyExists:
                if not if_not_exists:
                    raise
                continue
            if as_json:
                print_json(created)
            else:
                print(f"created {name} with {len(created.partitions)} partitions")


def list_topics(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """List topics."""
    from tidelog.client import Admin

    with Admin(broker) as admin:
        topics = admin.topics()
    if as_json:
        print_json(topics)
        return
    rows = [(topic.name, len(topic.partitions), topic.records, time_text(topic.created_at_ms)) for topic in topics]
    print_table(("topic", "partitions", "records", "created"), rows)


def describe(names: NamesArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the partitions and configs of topics."""
    from tidelog.client import Admin

    with Admin(broker) as admin:
        for name in names:
            described = admin.topic(name)
            if as_json:
                print_json(described)
            else:
                _print_topic(described)


def alter(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="More partitions.", min=1)] = None,
    configs: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A topic config to put back to its default.", metavar="KEY")
    ] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Change a topic's configs, or add partitions."""
    from tidelog.client import Admin

    changes = {**_configs(configs), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise Invalid("nothing to alter: say --partitions N, --set KEY=VALUE or --unset KEY")
    with Admin(broker) as admin:
        altered = admin.alter_topic(topic, partitions=partitions, configs=changes)
    if as_json:
        print_json(altered)
    else:
        _print_topic(altered)


def delete(
    names: NamesArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
) -> None:
    """Delete topics and all their records. Asks first when on a terminal."""
    from tidelog.client import Admin

    with Admin(broker) as admin:
        for name in names:
            if not yes and sys.stdin.isatty():
                typer.confirm(f"Delete {name} and its {admin.topic(name).records} records?", abort=True)
            admin.delete_topic(name)
            print(f"deleted {name}")


def delete_records(
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(help="The partition's number.", min=0, show_default=False)],
    before: Annotated[
        str,
        typer.Argument(help="The first offset that stays, or latest for none.", metavar="OFFSET", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Delete the records of a partition below an offset. Asks first when on a terminal."""
    from tidelog.client import Admin

    before_offset = _before_offset(before)
    with Admin(broker) as admin:
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Delete the records of {topic}/{partition} below {before}?", abort=True)
        log_start_offset = admin.delete_records(topic, partition, before_offset)
    if as_json:
        print_json({"topic": topic, "partition": partition, "log_start_offset": log_start_offset})
    else:
        print(f"{topic}/{partition} begins at offset {log_start_offset}")


def _before_offset(text: str) -> int:
    if text == "latest":
        return -1
    if not (text.isascii() and text.isdigit()):
        raise Invalid(f"OFFSET is a number or latest, not {text!r}", field="before_offset")
    return int(text)


def _configs(pairs: list[str] | None) -> Mapping[str, str | None]:
    changes: dict[str, str | None] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Invalid(f"--set takes KEY=VALUE, as retention.ms=86400000, not {pair!r}")
        changes[key] = value
    return changes


def _print_topic(topic: TopicDescription) -> None:
    print_facts(
        [
            ("topic", topic.name),
            ("id", topic.topic_id),
            ("created", time_text(topic.created_at_ms)),
            *sorted(topic.configs.items()),
        ]
    )
    print()
    rows = [
        (part.partition, part.shard, part.log_start_offset, part.cold_end, part.high_watermark, part.records)
        for part in topic.partitions
    ]
    print_table(("partition", "shard", "log start", "cold end", "high watermark", "records"), rows)
