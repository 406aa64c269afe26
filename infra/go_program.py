"""Builds programs with Go from their modules."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.component import CannotMake, run_showing_progress, tools_folder, workshop


def go_install(name: str, module: str, program: Path) -> None:
    """Build the command `name` of `module` (``path@version``) as `program`. Raises `CannotMake`."""
    with workshop(tools_folder()) as folder:
        _go(name, ["install", module], {"GOBIN": str(folder)})
        (folder / name).replace(program)


def go_build(name: str, source: Path, program: Path) -> None:
    """Build the module in the folder `source` as `program`, with exactly the versions it names. Raises `CannotMake`."""
    with workshop(tools_folder()) as folder:
        target = folder / name
        _go(name, ["build", "-C", str(source), "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(target)], {})
        target.replace(program)


def _go(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotMake("Go is not installed")
    run_showing_progress(name, [go, *arguments], {"CGO_ENABLED": "0", **environment})
