"""The options of a write: ``df.write`` and ``df.writeStream.format("tidelog")``.

    where to          topic: for all rows, instead of the column `topic`; broker: its URL; store: how executors reach
                      the bucket (``file:``, ``s3:``), or ``broker`` to stage records through the broker
    a stream's name   queryId: instead of the id in the checkpoint; firstBatch: the first batch that may be published
                      although nothing is known of the batches before it

Spark passes some options of its own. Settings of Kafka's client (``kafka.…``) do nothing here, but for the address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.spark_connector.options.option_text import broker_url, by_known_name
from tidelog.storage.errors import Invalid
from tidelog.wire.staging import SINK_NAME

KNOWN_OPTIONS = ("topic", "broker", "store", "queryId", "firstBatch")
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "path"})
_KAFKA_ADDRESS = "kafka.bootstrap.servers"


@dataclass(frozen=True)
class SinkOptions:
    """`topic` None: each row names one. `store` None: as the broker names it."""

    topic: str | None
    broker: str
    store: str | None = None
    query_id: str | None = None
    first_batch: int = 0


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises `Invalid` with the option in `field`."""
    own = {name: value for name, value in given.items() if not _means_nothing(name.lower())}
    options = by_known_name(own, KNOWN_OPTIONS)
    if options.get("topic") == "":
        raise Invalid("the option topic is empty: name a topic, or leave it out and add a column topic", field="topic")
    return SinkOptions(
        topic=options.get("topic"),
        broker=broker_url(options),
        store=options.get("store") or None,
        query_id=_query_id(options),
        first_batch=_first_batch(options),
    )


def _means_nothing(name: str) -> bool:
    return name in _OF_SPARK or (name.startswith("kafka.") and name != _KAFKA_ADDRESS)


def _query_id(options: Mapping[str, str]) -> str | None:
    text = options.get("queryId")
    if text is not None and not re.fullmatch(SINK_NAME, text):
        raise Invalid(f"queryId is 1 to 100 of A-Z a-z 0-9 _ -, not {text[:80]!r}", field="queryId")
    return text


def _first_batch(options: Mapping[str, str]) -> int:
    text = options.get("firstBatch", "0")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Invalid(f"firstBatch is the number of a batch, not {text[:80]!r}", field="firstBatch")
    return int(text)
