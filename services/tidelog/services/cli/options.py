"""Options and arguments that several commands share, so that each has one name and one help text."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tidelog.client import Admin

DEFAULT_BROKER = "http://127.0.0.1:8080"
DEFAULT_STORE = "file:./tidelog-data"
COMPLETION_S_MAX = 1.0
"""A person waits for the completion of a topic's name."""


def admin_of(broker: str) -> Admin:
    """An admin client of `broker`. The import is here, so that `tidelog --help` does not wait for it."""
    from tidelog.client import Admin

    return Admin(broker)


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin with `incomplete`, for completion in a shell. Names that are already on the command
    line are left out. Empty if the broker does not answer within `COMPLETION_S_MAX`."""
    broker = str(ctx.params.get("broker") or os.environ.get("TIDELOG_BROKER") or DEFAULT_BROKER)
    given = ctx.params.get("names") or ()
    found: list[str] = []
    asking = threading.Thread(target=_ask_for_topics, args=(broker, found), daemon=True)
    asking.start()
    asking.join(COMPLETION_S_MAX)
    return [name for name in found if name.startswith(incomplete) and name not in given]


def _ask_for_topics(broker: str, found: list[str]) -> None:
    from tidelog.client import Admin

    logging.getLogger("tidelog.client").disabled = True  # a warning would appear on the line that is completed
    with contextlib.suppress(Exception), Admin(broker, deadline_s=COMPLETION_S_MAX) as admin:
        found += [topic.name for topic in admin.topics()]


BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        envvar="TIDELOG_BROKER",
        help="The broker's URL. For a cluster, give several with commas.",
        metavar="URL",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TopicArgument = Annotated[
    str, typer.Argument(help="The topic's name.", metavar="TOPIC", show_default=False, autocompletion=topic_names)
]
StoreOption = Annotated[
    str,
    typer.Option("--store", envvar="TIDELOG_STORE", help="The bucket: file:PATH or s3://BUCKET/PREFIX.", metavar="URL"),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where stdin is no terminal.")]
