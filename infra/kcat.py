"""kcat, a client of Kafka for shells, for tests: the machine's own, or Debian's, unpacked without installing it."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import Component, run_showing_progress, tools_folder, workshop
from infra.debian import unpack

PACKAGES = ("kcat", "librdkafka1", "libyajl2")  # of Debian 12, without those that are preinstalled
START = """\
#!/bin/sh
# Debian's kcat beside its libraries, which are not installed.
LD_LIBRARY_PATH=$(echo "{kept}"/usr/lib/*-linux-gnu*) exec "{kept}/usr/bin/kcat" "$@"
"""


def program() -> Path:
    """The script that starts the unpacked program."""
    return tools_folder() / "kcat"


def find() -> Path | None:
    """The machine's own program, else the unpacked one."""
    own = shutil.which("kcat")
    if own:
        return Path(own)
    return program() if program().is_file() else None


def make() -> None:
    """Unpack it from Debian's packages: 1 MB."""
    with workshop(tools_folder()) as folder:
        unpack("kcat", PACKAGES, folder)
        kept = tools_folder() / "kcat-debian"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder / "usr", kept / "usr", symlinks=True)
        start = folder / "kcat"
        start.write_text(START.format(kept=kept))
        start.chmod(0o755)
        run_showing_progress("kcat", [str(start), "-V"], {})  # fails if this machine lacks another library
        start.replace(program())


KCAT = Component(
    name="kcat",
    purpose="tests of Kafka's protocol with kcat",
    how="install kcat 1.7; on Debian 12, `python infra/components.py prepare kcat`",
    find=find,
    make=make,
    seconds=10,
    megabytes=1,
    programs=("apt-get", "dpkg"),
)
