"""A Tidelog broker in its own process, started like a user starts it: `tidelog serve`, with settings in `TIDELOG_*`."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import httpx
from infra.loopback_ports import free_port

from benchmarks.processes import Child, Children, Failed
from tidelog.client import (
    Admin,
    ClusterDescription,
    PartitionLogDescription,
    SegmentDescription,
    TopicDescription,
    TopicLogRequest,
)
from tidelog.storage.errors import Unavailable

ARROW_CLIENT = "prebuilt Arrow bodies over plain sockets: no work per record"
JSON_CLIENT = "prebuilt JSON bodies over plain sockets: no work per record"
BATCHED_CLIENT = "tidelog.client Producer.send: one Python call per record; the client batches and encodes as Arrow"
FETCH_CLIENT = "opens each Arrow stream and sums the bytes of its values: no work per record"
PLACES = frozenset({"etcd.endpoints", "listeners"})
"""Settings that give a location. The report does not list them as changed settings."""
SERVE = "import sys; from tidelog.services.cli.main import main; sys.exit(main())"


class TidelogBroker:
    """`settings` are those of `tidelog serve`, with dotted names (``flush.interval.ms``)."""

    def __init__(
        self,
        children: Children,
        store: str,
        settings: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._children = children
        children.note_settings(
            "Tidelog", {name: value for name, value in (settings or {}).items() if name not in PLACES}
        )
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        wanted = {"store": store, "port": self.port, "listeners": "none", "log.level": "warning", **(settings or {})}
        variables = {f"TIDELOG_{name.upper().replace('.', '_')}": str(value) for name, value in wanted.items()}
        self.process: Child = children.start(
            "tidelog", [sys.executable, "-c", SERVE, "serve"], {**variables, **(env or {})}
        )
        self._admin = Admin(self.url, deadline_s=60)
        self.process.wait_until(self._ready)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str | int] | None = None) -> None:
        self._admin.create_topic(topic, partitions, configs)

    def topic(self, topic: str) -> TopicDescription:
        """The topic's partitions and their shards."""
        return self._admin.topic(topic)

    def log(self, topic: str, partition: int = 0) -> PartitionLogDescription:
        """The ends of a partition."""
        return self._admin.topic_log(topic, TopicLogRequest(partitions=(partition,))).partition(partition)

    def segments(self, topic: str) -> Sequence[SegmentDescription]:
        """The segments of all partitions."""
        return self._admin.topic_log(topic).segments

    def cluster(self) -> ClusterDescription:
        return self._admin.cluster()

    def wait_until_archived(self, topic: str, partitions: int, seconds_max: float) -> None:
        """Return when all records of `topic` are in segments. Raises `Failed`."""
        deadline = time.monotonic() + seconds_max
        while any((log := self.log(topic, number)).cold_end < log.high_watermark for number in range(partitions)):
            if time.monotonic() > deadline:
                raise Failed(f"the records were not archived within {seconds_max:.0f} s")
            time.sleep(0.5)

    def wal_entries(self) -> int:
        """The number of entries that the WALs have had so far."""
        return sum(shard.wal_next for shard in self.cluster().shards)

    def kafka_requests(self, api: str) -> int:
        """The number of requests of Kafka's protocol so far."""
        pattern = rf'^tidelog_kafka_requests_total\{{api="{api}",version="\d+"\}} (\S+)$'
        return sum(int(float(count)) for count in re.findall(pattern, self._metrics(), re.MULTILINE))

    def put_priced(self) -> dict[str, int]:
        """The broker's requests so far at the price of a PUT, by kind of object."""
        pattern = r'^tidelog_store_requests_total\{kind="(\w+)",verb="(?:put|create|list)"\} (\S+)$'
        found: Counter[str] = Counter()
        for kind, count in re.findall(pattern, self._metrics(), re.MULTILINE):
            found[kind] += int(float(count))
        return dict(found)

    def stop(self) -> None:
        self._admin.close()
        self._children.stop(self.process)

    def _metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=10, trust_env=False).text

    def _ready(self) -> bool:
        try:
            return self._admin.health().ready
        except Unavailable:
            return False
