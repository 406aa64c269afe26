"""Options that several commands share, so that they are called the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.services.cli.completion import topic_names

BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        envvar="TIDELOG_BROKER",
        help="The broker's URL; of a cluster several, with commas.",
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

DEFAULT_BROKER = "http://127.0.0.1:8080"
DEFAULT_STORE = "file:./tidelog-data"
