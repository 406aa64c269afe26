"""Options and arguments that several commands share, so that each has one name and one help text."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Annotated

import typer

from tidelog.services.cli.broker_options import OPTIONS, PROFILE_VARIABLE, BrokerChoice, chosen_broker
from tidelog.storage.errors import TidelogError

DEFAULT_STORE = "file:./tidelog-data"
COMPLETION_S_MAX = 1.0
"""A person waits for the completion of a topic's name."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin with `incomplete`, for completion in a shell. Names that are already on the command
    line are left out. Empty if the broker does not answer within `COMPLETION_S_MAX`."""
    given = ctx.params.get("names") or ()
    return [name for name in _known_topics(ctx) if name.startswith(incomplete) and name not in given]


def _known_topics(ctx: typer.Context) -> list[str]:
    variables = {"broker": "TIDELOG_BROKER", "profile": PROFILE_VARIABLE}
    chosen = {name: ctx.params.get(name) or os.environ.get(variables.get(name, "")) for name in OPTIONS}
    try:
        broker = chosen_broker(**chosen)
    except TidelogError:
        return []
    found: list[str] = []
    asking = threading.Thread(target=_ask_for_topics, args=(broker, found), daemon=True)
    asking.start()
    asking.join(COMPLETION_S_MAX)
    return found


def _ask_for_topics(broker: BrokerChoice, found: list[str]) -> None:
    from tidelog.client import Admin

    logging.getLogger("tidelog.client").disabled = True  # a warning would appear on the line that is completed
    with contextlib.suppress(TidelogError), Admin(broker.access(), deadline_s=COMPLETION_S_MAX) as admin:
        found += [topic.name for topic in admin.topics()]


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TopicArgument = Annotated[
    str, typer.Argument(help="The topic's name.", metavar="TOPIC", show_default=False, autocompletion=topic_names)
]
StoreOption = Annotated[
    str,
    typer.Option("--store", envvar="TIDELOG_STORE", help="The bucket: file:PATH or s3://BUCKET/PREFIX.", metavar="URL"),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where stdin is no terminal.")]
IfExistsOption = Annotated[bool, typer.Option("--if-exists", help="Skip those that do not exist.")]
