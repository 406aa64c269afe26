"""s2 lite, a stream service on a bucket, for comparison in the benchmarks; built from crates.io with Cargo.

It listens on every interface. Start it only where loopback is the only interface, as `benchmarks.s2_lite` does.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import CannotMake, Component, run_showing_progress, tools_folder, workshop

VERSION = "0.43.4"


def program() -> Path:
    """The program's path."""
    return tools_folder() / "s2" / "bin" / "s2"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: about nine minutes on two cores."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise CannotMake("Cargo is not installed")
    with workshop(tools_folder()) as folder:
        command = [cargo, "install", "s2-cli", "--version", VERSION, "--locked", "--root", str(folder)]
        run_showing_progress("s2", command, {})
        program().parent.mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "s2").replace(program())


S2_LITE = Component(
    name="s2",
    purpose="s2 lite, for the benchmarks",
    how="install Rust (https://rustup.rs), then `python infra/components.py prepare s2` (nine minutes)",
    find=find,
    make=make,
    seconds=540,
    megabytes=300,
    programs=("cargo",),
    on_demand=True,
)
