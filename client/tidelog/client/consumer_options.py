"""The options of a consumer."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.client.arrow_stream import Compression, checked_compression
from tidelog.client.connection import FIRST_CONNECT_TIMEOUT_S
from tidelog.storage.errors import Invalid

MIB = 1 << 20


@dataclass(frozen=True)
class ConsumerOptions:
    """`max_records` and `max_bytes` bound a fetch; None: the broker's own bounds. `buffer_bytes`: fetching ahead stops
    when so many decompressed bytes wait. `compression`: of fetched records on the wire. Unless it is ``none``, archived
    records come as they are stored. `connect_timeout_s`: the search for a first broker. `close_timeout_s` bounds
    `close`. `deadline_s`: without a group, `poll` raises `Unavailable` after that time without an answer; with a group
    it goes on trying.

    For a group: `auto_commit` commits what earlier polls gave out, every `auto_commit_interval_s` and in `close`. A
    consumer that does not poll for `max_poll_interval_s` leaves its group until the next poll. `session_timeout_s`: how
    long the group waits for a consumer that died. `instance_id`: a static member, which keeps its partitions over a
    restart. `assignor`: ``uniform`` or ``range``. `rack`: where the consumer runs. None: the coordinator's default."""

    max_records: int | None = None
    max_bytes: int | None = None
    buffer_bytes: int = 32 * MIB
    compression: Compression = "zstd"
    deadline_s: float = 30.0
    connect_timeout_s: float = FIRST_CONNECT_TIMEOUT_S
    close_timeout_s: float = 5.0
    auto_commit: bool = True
    auto_commit_interval_s: float = 5.0
    max_poll_interval_s: float = 300.0
    session_timeout_s: float | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rack: str | None = None
    client_id: str = "tidelog-python"

    def __post_init__(self) -> None:
        checked_compression(self.compression)
        if self.max_poll_interval_s <= 0 or self.auto_commit_interval_s <= 0:
            raise Invalid("max_poll_interval_s and auto_commit_interval_s are more than 0", field="options")
