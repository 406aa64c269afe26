"""One JVM that runs Kafka's command-line tools one after the other (`KafkaTools.java`)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("KafkaTools.java")
JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PACKAGE = "org.apache.kafka.tools."
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "consumer.group.ConsumerGroupCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
CLUSTER = "ClusterTool"
_NOISE = "SLF4J: "


@dataclass(frozen=True)
class Printed:
    """What a tool printed, and its exit code."""

    code: int
    text: str

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """The words of each line that is not empty."""
        return [line.split() for line in self.text.splitlines() if line.strip()]


class ToolsJvm:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, tool: str, *arguments: str) -> Printed:
        name = tool if tool.startswith("kafka.") else PACKAGE + tool
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(("\t".join((name, *arguments)) + "\n").encode())
        self._process.stdin.flush()
        head = self._process.stdout.readline().split()
        assert len(head) == 2, f"the JVM ended: {head}"
        text = self._process.stdout.read(int(head[1])).decode()
        return Printed(int(head[0]), "\n".join(line for line in text.splitlines() if not line.startswith(_NOISE)))


@dataclass(frozen=True)
class Tools:
    """Kafka's tools against the broker at `bootstrap`, which runs in this process."""

    jvm: ToolsJvm
    bootstrap: str

    async def __call__(self, tool: str, *arguments: str, code: int = 0) -> Printed:
        """Run `tool`, and check its exit code."""
        broker = ("--bootstrap-server", self.bootstrap)
        words = (*arguments, *broker) if tool == CLUSTER else (*broker, *arguments)
        printed = await asyncio.to_thread(self.jvm.run, tool, *words)
        assert printed.code == code, printed.text
        return printed


@contextmanager
def tools_jvm(jars: Path) -> Iterator[ToolsJvm]:
    command = ["java", *JVM, "-cp", f"{jars}/*", str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield ToolsJvm(process)
        process.kill()
