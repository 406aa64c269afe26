"""`tidelog topic create | list | describe | alter | delete | delete-records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.completion import topic_names
from tidelog.services.cli.config_values import config_changes
from tidelog.services.cli.console import check_may_ask, confirm, print_facts, print_json, print_table, time_text
from tidelog.services.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, TopicArgument
from tidelog.storage.errors import AlreadyExists, Invalid

if TYPE_CHECKING:
    from tidelog.client import TopicDescription

NewNamesArgument = Annotated[
    list[str], typer.Argument(help="Names of new topics.", metavar="TOPIC...", show_default=False)
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(help="Names of topics.", metavar="TOPIC...", show_default=False, autocompletion=topic_names),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-c",
        help="A topic config, as retention.ms=7d or segment.bytes=1GiB. Repeatable.",
        metavar="KEY=VALUE",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where stdin is no terminal.")]
PartitionsOption = Annotated[int | None, typer.Option("--partitions", "-p", help="How many partitions.", min=1)]


def create(
    names: NewNamesArgument,
    partitions: PartitionsOption = None,
    configs: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic alone that exists already.")
    ] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Create topics. Configs in ms and bytes may have a unit.

    [dim]tidelog topic create web -p 4 -c retention.ms=7d -c segment.bytes=256MiB[/dim]
    """
    from tidelog.client import Admin

    changes = config_changes(configs or [])
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


def list_topics(
    records: Annotated[
        bool, typer.Option("--records", help="Count records too. May cost the broker a request a partition.")
    ] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """List topics, with their partitions; with `--records`, with their records too.

    [dim]tidelog topic list --json[/dim]
    """
    from tidelog.client import Admin

    with Admin(broker) as admin:
        topics = admin.topics(detail=records)
    if as_json:
        print_json(topics)
        return
    if records:
        counted = [
            (topic.name, len(topic.partitions), _count(topic.records), time_text(topic.created_at_ms))
            for topic in topics
        ]
        print_table(("topic", "partitions", "records", "created"), counted)
        return
    rows = [(topic.name, len(topic.partitions), time_text(topic.created_at_ms)) for topic in topics]
    print_table(("topic", "partitions", "created"), rows)


def _count(records: int | None) -> str | int:
    return "unknown" if records is None else records


def describe(names: NamesArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the partitions and configs of topics.

    [dim]tidelog topic describe web[/dim]
    """
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
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number of partitions: more than now.", min=1)
    ] = None,
    configs: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A topic config to put back to its default.", metavar="KEY")
    ] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Change a topic's configs, or add partitions.

    [dim]tidelog topic alter web --set retention.ms=30d
    tidelog topic alter web --unset retention.ms -p 8[/dim]
    """
    from tidelog.client import Admin

    changes: dict[str, str | None] = {**config_changes(configs or []), **dict.fromkeys(unset or [])}
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
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
) -> None:
    """Delete topics and all their records. It asks first on a terminal; without one it needs --yes.

    [dim]tidelog topic delete web --yes[/dim]
    """
    from tidelog.client import Admin

    check_may_ask(yes)
    with Admin(broker) as admin:
        for name in names:
            if not yes:
                confirm(f"Delete {name} and its {admin.topic(name).records:,} records?")
            admin.delete_topic(name)
            print(f"deleted {name}")


def delete_records(
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(help="The partition's number.", min=0, show_default=False)],
    before: Annotated[
        str,
        typer.Argument(help="The first offset that stays, or latest for none.", metavar="OFFSET", show_default=False),
    ],
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Delete the records of a partition below an offset. It asks first on a terminal; without one it needs --yes.

    [dim]tidelog topic delete-records web 0 1000 --yes
    tidelog topic delete-records web 0 latest --yes[/dim]
    """
    from tidelog.client import Admin

    before_offset = _before_offset(before)
    check_may_ask(yes)
    with Admin(broker) as admin:
        if not yes:
            confirm(f"Delete the records of {topic}/{partition} below {before}?")
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
