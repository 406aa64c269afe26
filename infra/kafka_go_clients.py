"""Clients of Kafka for Go, for tests: franz-go, sarama and kafka-go, built with Go from `tests/kafka/clients/go`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from infra.component import Component, tools_folder
from infra.go_program import go_build

SOURCE = Path(__file__).parent.parent / "tests" / "kafka" / "clients" / "go"


def program() -> Path:
    """The program's path. Its name contains a hash of the source, so an outdated program is never used."""
    source = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    return tools_folder() / f"kafka-clients-{hashlib.sha256(source).hexdigest()[:12]}"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: a minute, and 30 MB of modules."""
    go_build("kafka-clients", SOURCE, program())


KAFKA_GO_CLIENTS = Component(
    name="kafka-clients",
    purpose="tests of Kafka's protocol with the clients for Go",
    how="install Go 1.26 or newer (https://go.dev/dl), then `python infra/components.py prepare kafka-clients`",
    find=find,
    make=make,
    seconds=80,
    megabytes=30,
    programs=("go",),
)
