"""`tidelog topic consume TOPIC`: prints records to stdout, as kcat does."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.services.cli.consume_options import ConsumeOptions
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.record_format import renderer
from tidelog.storage.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client import Batch
    from tidelog.services.cli.where.selection import Selection


def consume(broker: BrokerChoice, topic: TopicArgument, options: ConsumeOptions, as_json: JsonOption = False) -> None:
    """Print records from the oldest on and follow the log: by default each value and a newline.

    An offset (-o N) beyond the end of every partition is an error, exit code 2.
    If only some partitions end before N, those are read from their end on; stderr names them.
    With --group, -o says where to begin in partitions for which the group has no committed offset.

    [dim]tidelog topic consume web -o start -e > access.log
    tidelog topic consume web -o -10 -n 10 -f '%t %p %o %k %v\\n'
    tidelog topic consume web -e --where "value.status >= 500 and timestamp >= '2026-01-31'"
    tidelog topic consume web --group billing[/dim]
    """
    render = renderer(topic, options.line_format, as_json=as_json)
    with (
        open(sys.stdout.fileno(), "wb", closefd=False) as output,  # an unbuffered sys.stdout.buffer may write less
        _opened(broker, topic, options) as batches,
    ):
        for batch in batches:
            output.write(render(batch))
            output.flush()


def _opened(broker: BrokerChoice, topic: str, options: ConsumeOptions) -> AbstractContextManager[Iterator[Batch]]:
    """The batches to print. Raises `Invalid`."""
    from tidelog.services.cli.group_reading import group_batches
    from tidelog.services.cli.topic_reading import topic_batches

    selection = None if options.where is None else _selection(options.where)
    if options.group is None:
        return topic_batches(broker, topic, options, selection)
    if options.partitions:
        raise Invalid("the group assigns the partitions: leave -p out", field="partition")
    return group_batches(broker, topic, options, selection)


def _selection(where: str) -> Selection:
    from tidelog.services.cli.where.parser import parsed
    from tidelog.services.cli.where.selection import Selection

    return Selection(parsed(where))
