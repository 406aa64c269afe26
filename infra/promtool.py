"""promtool, which checks and tests Prometheus' rules: the machine's own, or Debian's, unpacked without installing
it."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import Component, run_showing_progress, tools_folder, workshop
from infra.debian import unpack


def program() -> Path:
    """The program's path."""
    return tools_folder() / "promtool"


def find() -> Path | None:
    """The machine's own program, else the unpacked one."""
    own = shutil.which("promtool")
    if own:
        return Path(own)
    return program() if program().is_file() else None


def make() -> None:
    """Unpack it from Debian's package: 19 MB."""
    with workshop(tools_folder()) as folder:
        unpack("promtool", ["prometheus"], folder)
        run_showing_progress("promtool", [str(folder / "usr/bin/promtool"), "--version"], {})
        (folder / "usr/bin/promtool").replace(program())


PROMTOOL = Component(
    name="promtool",
    purpose="tests of the alerts",
    how="install Prometheus 2.42 or newer; on Debian 12, `python infra/components.py prepare promtool`",
    find=find,
    make=make,
    seconds=10,
    megabytes=20,
    programs=("apt-get", "dpkg"),
)
