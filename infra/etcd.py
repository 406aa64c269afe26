"""etcd: the newest release, built with Go, and Debian's 3.4, the oldest version that Tidelog supports."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.component import CannotMake, Component, tools_folder, workshop
from infra.debian import unpack
from infra.go_program import go_build

VERSION = "3.7.3"  # as in etcd_server/go.mod
SOURCE = Path(__file__).parent / "etcd_server"


def program() -> Path:
    """The program's path."""
    return tools_folder() / f"etcd-{VERSION}"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: about a minute of CPU and 100 MB of sources."""
    go_build("etcd", SOURCE, program())


def program34() -> Path:
    """The path of Debian's program."""
    return tools_folder() / "etcd-3.4"


def find34() -> Path | None:
    """Debian's program, None if it is missing."""
    return program34() if program34().is_file() else None


def make34() -> None:
    """Unpack it from Debian's package: 8 MB."""
    with workshop(tools_folder()) as folder:
        unpack("etcd34", ["etcd-server"], folder)
        version = subprocess.run([folder / "usr/bin/etcd", "--version"], capture_output=True, text=True, check=True)
        if "etcd Version: 3.4." not in version.stdout:
            raise CannotMake(f"this Debian's etcd is not 3.4 but {version.stdout.partition(chr(10))[0]!r}")
        (folder / "usr/bin/etcd").replace(program34())


ETCD = Component(
    name="etcd",
    purpose="tests of clusters and of chaos; `make cluster` with several brokers; benchmarks",
    how="install Go 1.26 or newer (https://go.dev/dl), then `python infra/components.py prepare etcd`",
    find=find,
    make=make,
    seconds=60,
    megabytes=100,
    programs=("go",),
)

ETCD34 = Component(
    name="etcd34",
    purpose="tests of the key-value store on etcd 3.4",
    how="on Debian 12, `apt-get update`, then `python infra/components.py prepare etcd34`",
    find=find34,
    make=make34,
    seconds=10,
    megabytes=8,
    programs=("apt-get", "dpkg"),
)
