"""Kafka 4.1 on this machine: one KRaft node from Maven Central's jars, with the stock script's JVM settings.

Kafka's own load tools drive it. They print MiB; this module returns MB of 1e6 bytes of values.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.component import Component
from infra.components import prepare
from infra.kafka import KAFKA, VERSION, jars
from infra.loopback_ports import free_port

from benchmarks.processes import Child, Children, Failed, listens, run

BROKER_JVM = [
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
]
TOOL_JVM = ["-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
PRODUCER = ["acks=all", "batch.size=131072", "linger.ms=5"]
BEST = ["acks=all", "batch.size=1048576", "linger.ms=20", "compression.type=lz4"]
"""The fastest of the codecs and sizes that were tried with Kafka's own tool on this machine."""
CLIENT = f"kafka-producer-perf-test {VERSION}: picks, copies, checks and batches each record; {' '.join(PRODUCER)}"
BEST_CLIENT = f"the same; {' '.join(BEST)}"
CONSUMER = f"kafka-consumer-perf-test {VERSION}: decodes each record into an object and drops it"

ENDLESS_RECORDS = 1 << 40

_CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class KafkaProduced:
    """The last line of kafka-producer-perf-test."""

    records_per_s: float
    p50_ms: float
    p99_ms: float


def missing(component: Component = KAFKA) -> str:
    """Say why Kafka or a part of it cannot run here; empty if it can run. Fetches the jars if they are absent."""
    if shutil.which("java") is not None and prepare(component):
        return ""
    return f"{component.name} is missing: {component.how}"


class KafkaTools:
    """Kafka's own tools, against the broker at `bootstrap`."""

    def __init__(self, children: Children, bootstrap: str) -> None:
        self._children = children
        self._classpath = f"{jars()}/*"
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        arguments = ["--bootstrap-server", self.bootstrap, "--create", "--topic", topic, "--partitions", partitions]
        self._tool("org.apache.kafka.tools.TopicCommand", *arguments)

    def produce(self, topic: str, payload: Path, records: int, properties: Sequence[str] = PRODUCER) -> KafkaProduced:
        """Send `records` records, chosen at random from the lines of `payload`."""
        out = self._tool(*self._produce_arguments(topic, payload, records, properties))
        last = out.strip().splitlines()[-1]
        found = re.search(r"sent, ([\d.]+) records/sec.* (\d+) ms 50th.* (\d+) ms 99th", last)
        if found is None:
            raise Failed(f"kafka-producer-perf-test printed no summary: {last}")
        return KafkaProduced(*(float(number) for number in found.groups()))

    def start_producing(self, topic: str, payload: Path, properties: Sequence[str]) -> Child:
        """Start the same tool without a limit; the caller stops it. `windows_mb_per_s` reads its output."""
        arguments = self._produce_arguments(topic, payload, ENDLESS_RECORDS, properties)
        return self._children.start("kafka-producer", self._java(*arguments))

    def _produce_arguments(
        self, topic: str, payload: Path, records: int, properties: Sequence[str]
    ) -> tuple[object, ...]:
        return (
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", records, "--throughput", -1, "--payload-file", payload),
            *("--producer-props", f"bootstrap.servers={self.bootstrap}", *properties),
        )

    def consume(self, topic: str, records: int) -> float:
        """MB/s (1e6 bytes) of reading `records` records from the beginning, without the time of joining a group."""
        out = self._tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", self.bootstrap, "--topic", topic, "--messages", records),
        )
        return fetch_mb_per_s(out)

    def _tool(self, *words: object) -> str:
        return run(self._java(*words))

    def _java(self, *words: object) -> list[str]:
        """One of Kafka's tools by its main class, and its arguments."""
        return ["java", *TOOL_JVM, "-cp", self._classpath, *map(str, words)]


class KafkaBroker(KafkaTools):
    """One node with its log under `folder`. `settings` are added to its server.properties."""

    def __init__(self, children: Children, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        children.note_settings("Kafka", settings or {})
        self._port, controller = free_port(), free_port()
        super().__init__(children, f"127.0.0.1:{self._port}")
        self.data = folder / "kafka-data"
        config = folder / "kafka.properties"
        given = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        config.write_text(_CONFIG.format(port=self._port, controller=controller, data=self.data) + given)
        self._tool("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", config)
        command = ["java", *BROKER_JVM, "-cp", self._classpath, "kafka.Kafka", config]
        self.process: Child = children.start("kafka", command)
        self.process.wait_until(lambda: listens(self._port))

    def log_bytes(self, topic: str) -> int:
        """Bytes of the topic on disk: its log segments without indexes."""
        return sum(path.stat().st_size for path in self.data.glob(f"{topic}-*/*.log"))

    def stop(self) -> None:
        self._children.stop(self.process)


def windows_mb_per_s(output: str) -> list[float]:
    """MB/s (1e6 bytes) of each five-second window that kafka-producer-perf-test printed."""
    return [
        float(mib) * 2**20 / 1e6 for mib in re.findall(r"records sent, [\d.]+ records/sec \(([\d.]+) MB/sec\)", output)
    ]


def fetch_mb_per_s(output: str) -> float:
    """MB/s in the output of kafka-consumer-perf-test, without the time to join the group."""
    header, *_, last = [line for line in output.splitlines() if "," in line]
    row = dict(zip((name.strip() for name in header.split(",")), last.split(","), strict=True))
    mib, fetch_ms = float(row["data.consumed.in.MB"]), float(row["fetch.time.ms"])
    return mib * 2**20 / 1e6 / (fetch_ms / 1e3)


def java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return "none"
    return (done.stderr or done.stdout).splitlines()[0]
