"""`tidelog topic create | list | describe | alter | delete | delete-records`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import (
    check_may_ask,
    confirm,
    print_answer,
    print_facts,
    print_json,
    print_table,
    time_text,
)
from tidelog.services.cli.deletion import Deletion
from tidelog.services.cli.options import (
    IfExistsOption,
    JsonOption,
    TopicArgument,
    YesOption,
    topic_names,
)
from tidelog.services.settings.setting import Kind, measured
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
    typer.Option("--set", "-c", help="A topic config, as retention.ms=7d. Repeatable.", metavar="KEY=VALUE"),
]
PartitionsOption = Annotated[int | None, typer.Option("--partitions", "-p", help="Number of partitions.", min=1)]


def create(
    broker: BrokerChoice,
    names: NewNamesArgument,
    partitions: PartitionsOption = None,
    configs: ConfigOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Skip topics that exist already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics. Configs in ms and bytes may have a unit.

    [dim]tidelog topic create web -p 4 -c retention.ms=7d -c segment.bytes=256MiB[/dim]
    """
    changes = _config_changes(configs or [])
    with broker.admin() as admin:
        for name in names:
            try:
                created = admin.create_topic(name, partitions, changes)
            except AlreadyExists:
                if not if_not_exists:
                    raise
                continue
            print_answer(created, _print_created, as_json=as_json)


def list_topics(
    broker: BrokerChoice,
    records: Annotated[
        bool, typer.Option("--records", help="Count records too. May cost the broker a request for each partition.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List topics with their partitions, and with --records their records.

    [dim]tidelog topic list --json[/dim]
    """
    with broker.admin() as admin:
        topics = admin.topics(detail=records)
    if as_json:
        print_json(topics)
        return
    rows = [(topic.name, len(topic.partitions), time_text(topic.created_at_ms)) for topic in topics]
    if not records:
        print_table(("topic", "partitions", "created"), rows)
        return
    counts = ["unknown" if topic.records is None else topic.records for topic in topics]
    counted = [
        (name, partitions, count, created) for (name, partitions, created), count in zip(rows, counts, strict=True)
    ]
    print_table(("topic", "partitions", "records", "created"), counted)


def describe(broker: BrokerChoice, names: NamesArgument, as_json: JsonOption = False) -> None:
    """Show the partitions and configs of topics.

    [dim]tidelog topic describe web[/dim]
    """
    with broker.admin() as admin:
        for name in names:
            print_answer(admin.topic(name), _print_topic, as_json=as_json)


def alter(
    broker: BrokerChoice,
    topic: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number of partitions: more than now.", min=1)
    ] = None,
    configs: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A topic config to reset to its default.", metavar="KEY")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change a topic's configs, or add partitions.

    [dim]tidelog topic alter web --set retention.ms=30d
    tidelog topic alter web --unset retention.ms -p 8[/dim]
    """
    changes: dict[str, str | None] = {**_config_changes(configs or []), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise Invalid("nothing to alter: give --partitions N, --set KEY=VALUE or --unset KEY")
    with broker.admin() as admin:
        altered = admin.alter_topic(topic, partitions=partitions, configs=changes)
    print_answer(altered, _print_topic, as_json=as_json)


def delete(
    broker: BrokerChoice,
    names: NamesArgument,
    yes: YesOption = False,
    if_exists: IfExistsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics and all their records. Asks first on a terminal; elsewhere --yes is needed.

    [dim]tidelog topic delete web --yes
    tidelog topic delete web --yes --if-exists[/dim]
    """
    check_may_ask(yes)
    with broker.admin() as admin:

        def question(name: str) -> str:
            return f"Delete {name} and its {admin.topic(name).records:,} records?"

        Deletion(admin.delete_topic, question, yes, if_exists).run(names, as_json=as_json)


def delete_records(
    broker: BrokerChoice,
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(help="The partition's number.", min=0, show_default=False)],
    before: Annotated[
        str,
        typer.Argument(
            help="The first offset that stays; latest deletes all records.", metavar="OFFSET", show_default=False
        ),
    ],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the records of a partition below an offset. Asks first on a terminal; elsewhere --yes is needed.

    [dim]tidelog topic delete-records web 0 1000 --yes
    tidelog topic delete-records web 0 latest --yes[/dim]
    """
    before_offset = _before_offset(before)
    check_may_ask(yes)
    with broker.admin() as admin:
        if not yes:
            confirm(f"Delete the records of {topic}/{partition} below {before}?")
        log_start_offset = admin.delete_records(topic, partition, before_offset)
    if as_json:
        print_json({"topic": topic, "partition": partition, "log_start_offset": log_start_offset})
    else:
        print(f"{topic}/{partition} begins at offset {log_start_offset}")


def _config_changes(pairs: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` pairs as people write them, with units turned into plain numbers of milliseconds and bytes. Raises
    `Invalid`; the broker checks the rest."""
    return dict(_config_change(pair) for pair in pairs)


def _config_change(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise Invalid(f"--set must be KEY=VALUE, as retention.ms=7d, not {pair!r}", field="configs")
    kinds: dict[str, Kind] = {"ms": "duration", "bytes": "size"}
    kind = kinds.get(key.rpartition(".")[2])
    return key, value if kind is None else str(measured(key, kind, value))


def _before_offset(text: str) -> int:
    if text == "latest":
        return -1
    if not (text.isascii() and text.isdigit()):
        raise Invalid(f"OFFSET must be a number or latest, not {text!r}", field="before_offset")
    return int(text)


def _print_created(topic: TopicDescription) -> None:
    print(f"created {topic.name} with {len(topic.partitions)} partitions")


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
