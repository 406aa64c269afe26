"""Checks this machine: the versions of what runs here, and the disk space of the folders that a broker writes to."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tidelog.services.cli.console import size_text
from tidelog.services.cli.doctor.check import Check, failed, ok, warning

FREE_FAILED_BYTES = 100 << 20
FREE_WARNING_BYTES = 2 << 30
FREE_WARNING_SHARE = 0.05


def check_versions() -> Check:
    names = ", ".join(f"{name} {version(name)}" for name in ("tidelog", "pyarrow"))
    return ok("versions", f"{names}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")


def check_disk(name: str, folder: Path, option: str) -> Sequence[Check]:
    """Whether `folder`, which `option` names, can be written to and has space."""
    if not folder.is_dir():
        return [failed(name, f"there is no folder {folder}", f"create it, or name another one with {option}")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [failed(name, f"{folder} cannot be written to", f"change its owner, or name another with {option}")]
    usage = shutil.disk_usage(folder)
    found = f"{folder}: {size_text(usage.free)} of {size_text(usage.total)} are free"
    advice = f"free some space, or name another folder with {option}"
    if usage.free < FREE_FAILED_BYTES:
        return [failed(name, found, advice)]
    if usage.free < min(FREE_WARNING_BYTES, FREE_WARNING_SHARE * usage.total):
        return [warning(name, found, advice)]
    return [ok(name, found)]
