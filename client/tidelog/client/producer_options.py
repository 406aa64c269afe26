"""The options of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidelog.client.arrow_stream import Compression
from tidelog.client.connection import FIRST_CONNECT_TIMEOUT_S
from tidelog.client.partitioners import Partitioner

MIB = 1 << 20


@dataclass(frozen=True)
class ProducerOptions:
    """`linger_ms`: the longest time that a record waits for its batch. `compression`: of
    requests on the wire. `partitioner`: chooses the partition of a key. `delivery_timeout_s` bounds a request with its
    retries. `in_flight_max`: requests at once. `connect_timeout_s`: how long to look for a first broker.
    `close_timeout_s`: how long `close` waits for answers; a handover of a shard takes less. `producer_id` None: a new
    id."""

    acks: Literal["0", "1", "all"] = "all"
    batch_bytes: int = MIB
    linger_ms: int = 5
    compression: Compression = "zstd"
    partitioner: Partitioner = "murmur2"
    buffer_bytes: int = 64 * MIB
    request_bytes: int = 8 * MIB
    request_records: int = 500_000
    in_flight_max: int = 4
    delivery_timeout_s: float = 120.0
    connect_timeout_s: float = FIRST_CONNECT_TIMEOUT_S
    close_timeout_s: float = 15.0
    producer_id: str | None = None
    producer_epoch: int = 0
