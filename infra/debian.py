"""Unpacks programs from Debian's packages without installing them, so no service starts on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from infra.component import CannotMake, run_showing_progress

_FETCH = 'cd "$1" && shift && apt-get --quiet download "$@" && for each in *.deb; do dpkg -x "$each" .; done'


def unpack(name: str, packages: Sequence[str], folder: Path) -> None:
    """Unpack `packages` to `folder`, for the component `name`. Raises `CannotMake`."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotMake("this machine has no apt-get or dpkg")
    command = ["sh", "-c", _FETCH, "sh", str(folder), *packages]
    try:
        run_showing_progress(name, command, {})
    except CannotMake:
        if os.geteuid() != 0:
            raise
        run_showing_progress(name, ["apt-get", "--quiet", "update"], {})  # the package lists were missing or old
        run_showing_progress(name, command, {})
