"""`tidelog topic offsets`: the offset of a position in each partition of a topic, by one call."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.console import print_json, print_table
from tidelog.services.cli.options import JsonOption, TopicArgument

AtOption = Annotated[str, typer.Option("--at", help="A position in each partition.", metavar="start|end|N|-N|@TIME")]


def offsets(broker: BrokerChoice, topic: TopicArgument, at: AtOption = "end", as_json: JsonOption = False) -> None:
    """Show the offset of a position in each partition. Of a time: the first record at or after it.

    [dim]tidelog topic offsets web --at @2026-01-31T12:00:00Z[/dim]
    """
    with broker.admin() as admin:
        found = admin.offsets(topic, at)
    if as_json:
        print_json({"topic": topic, "partitions": [{"partition": each, "offset": found[each]} for each in found]})
    else:
        print_table(("partition", "offset"), list(found.items()))
