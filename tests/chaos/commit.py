"""The commit that a run tests, for its report."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def commit_of(folder: Path) -> str:
    """``git describe`` of the checkout that holds `folder`, with ``-dirty`` if files differ. `UNKNOWN` outside a
    checkout, and without git."""
    git = shutil.which("git")
    if git is None:
        return UNKNOWN
    command = [git, "-C", str(folder), "describe", "--always", "--long", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else UNKNOWN
