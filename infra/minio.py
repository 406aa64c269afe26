"""MinIO: an S3 server that keeps its word on ``If-None-Match: *`` among racing writers, built from its source by Go."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import CannotMake, Component, run_showing_progress, tools_folder, workshop

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


def program() -> Path:
    """Where the server's program is kept."""
    return tools_folder() / "minio"


def find() -> Path | None:
    """The program, if it is there."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: about two minutes and 150 MB."""
    go = shutil.which("go")
    if go is None:
        raise CannotMake("there is no Go here")
    with workshop(tools_folder()) as folder:
        command = [go, "install", f"github.com/minio/minio@{VERSION}"]
        run_showing_progress("minio", command, {"GOBIN": str(folder), "CGO_ENABLED": "0"})
        (folder / "minio").replace(program())


MINIO = Component(
    name="minio",
    purpose="S3 on this machine, for the stores' tests and the benchmarks",
    how="install Go 1.24 or newer (https://go.dev/dl), then `python infra/components.py prepare minio`",
    find=find,
    make=make,
)
