"""HAProxy, to test `balancer/haproxy.cfg`: the machine's own, or Debian's, unpacked without installing it."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import Component, run_showing_progress, tools_folder, workshop
from infra.debian import unpack

PACKAGES = (
    "haproxy",
    "liblua5.3-0",
    "libopentracing-c-wrapper0",
    "libopentracing1",
)  # of Debian 12, without those that are preinstalled
START = """\
#!/bin/sh
# Debian's HAProxy beside its libraries, which are not installed.
LD_LIBRARY_PATH=$(echo "{kept}"/usr/lib/*-linux-gnu*) exec "{kept}/usr/sbin/haproxy" "$@"
"""


def program() -> Path:
    """The script that starts the unpacked program."""
    return tools_folder() / "haproxy"


def find() -> Path | None:
    """The machine's own program, else the unpacked one."""
    own = shutil.which("haproxy")
    if own:
        return Path(own)
    return program() if program().is_file() else None


def make() -> None:
    """Unpack it from Debian's packages: 2 MB."""
    with workshop(tools_folder()) as folder:
        unpack("haproxy", PACKAGES, folder)
        kept = tools_folder() / "haproxy-debian"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder / "usr", kept / "usr", symlinks=True)
        start = folder / "haproxy"
        start.write_text(START.format(kept=kept))
        start.chmod(0o755)
        run_showing_progress("haproxy", [str(start), "-v"], {})  # fails if this machine lacks another library
        start.replace(program())


HAPROXY = Component(
    name="haproxy",
    purpose="tests of the load balancer",
    how="install HAProxy 2.6 or newer; on Debian 12, `python infra/components.py prepare haproxy`",
    find=find,
    make=make,
    seconds=10,
    megabytes=2,
    programs=("apt-get", "dpkg"),
)
