"""The log oracle: the second judge of the chaos tests, built with Go from `tests/chaos/oracle/log_oracle`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from infra.component import Component, tools_folder
from infra.go_program import go_build

SOURCE = Path(__file__).parent.parent / "tests" / "chaos" / "oracle" / "log_oracle"


def program() -> Path:
    """The program's path. Its name contains a hash of the source, so an outdated program is never used."""
    source = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    return tools_folder() / f"log-oracle-{hashlib.sha256(source).hexdigest()[:12]}"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: some seconds and one small module."""
    go_build("log-oracle", SOURCE, program())


LOG_ORACLE = Component(
    name="log-oracle",
    purpose="chaos tests: the second judge, a linearizability checker",
    how="install Go 1.26 or newer (https://go.dev/dl), then `python infra/components.py prepare log-oracle`",
    find=find,
    make=make,
    seconds=10,
    megabytes=1,
    programs=("go",),
)
