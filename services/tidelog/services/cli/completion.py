"""Completes names of topics in the shell, by asking the broker. Without an answer in time it completes nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import threading

import typer

DEADLINE_S = 1.0
"""A person waits for it."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with `incomplete`, but for those on the command line already."""
    broker = ctx.params.get("broker") or os.environ.get("TIDELOG_BROKER") or ""
    given = ctx.params.get("names") or ()
    found: list[str] = []
    asking = threading.Thread(target=_ask, args=(str(broker), found), daemon=True)
    asking.start()
    asking.join(DEADLINE_S)
    return [name for name in found if name.startswith(incomplete) and name not in given]


def _ask(broker: str, found: list[str]) -> None:
    from tidelog.client import Admin
    from tidelog.client.connection import DEFAULT_BROKER

    logging.getLogger("tidelog.client").disabled = True  # a shell that completes must not print
    with contextlib.suppress(Exception), Admin(broker or DEFAULT_BROKER, deadline_s=DEADLINE_S) as admin:
        found += [topic.name for topic in admin.topics()]
