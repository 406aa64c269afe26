"""MinIO: an S3 server that honours ``If-None-Match: *`` under racing writers; built from source with Go."""

from __future__ import annotations

from pathlib import Path

from infra.component import Component, tools_folder
from infra.go_program import go_install

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


def program() -> Path:
    """The program's path."""
    return tools_folder() / "minio"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: about two minutes and 150 MB."""
    go_install("minio", f"github.com/minio/minio@{VERSION}", program())


MINIO = Component(
    name="minio",
    purpose="tests of S3 stores, of clusters, of chaos; `make cluster` on S3; benchmarks",
    how="install Go 1.24 or newer (https://go.dev/dl), then `python infra/components.py prepare minio`",
    find=find,
    make=make,
    seconds=120,
    megabytes=150,
    programs=("go",),
)
