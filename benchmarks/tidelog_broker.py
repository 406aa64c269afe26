"""A Tidelog broker in a process of its own, as a user starts it: `tidelog serve`, its settings in `TIDELOG_*`."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from infra.loopback_ports import free_port

from benchmarks.processes import Child, Children
from tidelog.client import Admin
from tidelog.client.descriptions import ClusterDescription, PartitionLogDescription, TopicDescription
from tidelog.storage.errors import Unavailable

ARROW_CLIENT = "prebuilt Arrow bodies over plain sockets: nothing is done for a record"
JSON_CLIENT = "prebuilt JSON bodies over plain sockets: nothing is done for a record"
BATCHED_CLIENT = "tidelog.client Producer.send: a Python call a record, batched and encoded as Arrow by the client"
FETCH_CLIENT = "opens each Arrow stream and adds up the bytes of its values: nothing is done for a record"
PLACES = frozenset({"etcd.endpoints"})
"""Settings that say where something is: they are no deviation."""
SERVE = "import sys; from tidelog.services.cli.main import main; sys.exit(main())"


class TidelogBroker:
    """`settings` are those of `tidelog serve`, by their dotted names (``flush.interval.ms``)."""

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
        wanted = {"store": store, "port": self.port, "log.level": "warning", **(settings or {})}
        variables = {f"TIDELOG_{name.upper().replace('.', '_')}": str(value) for name, value in wanted.items()}
        self.process: Child = children.start(
            "tidelog", [sys.executable, "-c", SERVE, "serve"], {**variables, **(env or {})}
        )
        self._admin = Admin(self.url, deadline_s=60)
        self.process.wait_until(self._ready)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str | int] | None = None) -> None:
        self._admin.create_topic(topic, partitions, configs)

    def topic(self, topic: str) -> TopicDescription:
        """The topic's partitions, and the shards they live in."""
        return self._admin.topic(topic)

    def log(self, topic: str, partition: int = 0) -> PartitionLogDescription:
        """Offsets and segments of a partition."""
        return self._admin.partition_log(topic, partition)

    def cluster(self) -> ClusterDescription:
        return self._admin.cluster()

    def wal_entries(self) -> int:
        """How many objects the write-ahead logs have had so far."""
        return sum(shard.wal_next for shard in self.cluster().shards)

    def stop(self) -> None:
        self._admin.close()
        self._children.stop(self.process)

    def _ready(self) -> bool:
        try:
            return self._admin.health().ready
        except Unavailable:
            return False
