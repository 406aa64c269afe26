"""Compiles `records.c` with the C compiler in the wheel `ziglang`, which only the build's environment has.

The library does not use Python's headers, so one wheel of a platform serves every version of Python. It is compiled for
the oldest processor of its architecture and an old C library, so a wheel built here runs on other machines.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = "record_batches/tidelog/record_batches/records.c"
LIBRARY = "record_batches/tidelog/record_batches/_records.so"
FLAGS = (
    *("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
    "-s",  # without symbols for a debugger
)


@dataclass(frozen=True)
class Platform:
    """`zig_target`: the compiler's name of it. `wheel_tag`: installers' name of it."""

    zig_target: str
    wheel_tag: str


PLATFORMS = {
    ("linux-gnu", "x86_64"): Platform("x86_64-linux-gnu.2.17", "py3-none-manylinux_2_17_x86_64"),
    ("linux-gnu", "aarch64"): Platform("aarch64-linux-gnu.2.17", "py3-none-manylinux_2_17_aarch64"),
    ("linux-musl", "x86_64"): Platform("x86_64-linux-musl", "py3-none-musllinux_1_2_x86_64"),
    ("linux-musl", "aarch64"): Platform("aarch64-linux-musl", "py3-none-musllinux_1_2_aarch64"),
    ("darwin", "x86_64"): Platform("x86_64-macos.11.0", "py3-none-macosx_11_0_x86_64"),
    ("darwin", "arm64"): Platform("aarch64-macos.11.0", "py3-none-macosx_11_0_arm64"),
}


def platform_here() -> Platform:
    """The platform of the Python that runs this. Raises `RuntimeError` if Tidelog does not support it."""
    system = sys.platform
    if system == "linux":
        system = "linux-musl" if "musl" in str(sysconfig.get_config_var("SOABI")) else "linux-gnu"
    found = PLATFORMS.get((system, platform.machine()))
    if found is None:
        supported = ", ".join(" ".join(names) for names in PLATFORMS)
        raise RuntimeError(f"Tidelog cannot be built on {system} {platform.machine()}; it supports {supported}")
    return found


def compile_library(root: Path, target: Platform) -> Sequence[str]:
    """Write the library beside its source. Returns the patterns of the files.

    The compiler's cache (45 MB) is temporary, so nothing stays in the user's home.
    """
    source, library = root / SOURCE, root / LIBRARY
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as cache:
        made = Path(cache) / library.name
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target.zig_target, "-mcpu=baseline", *FLAGS]
        command += [f'-DSOURCE_DIGEST="{digest}"', "-o", str(made), str(source)]
        caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the compiler could not compile {SOURCE}: {done.stderr}")
        _replace(library, made.read_bytes())
    return [LIBRARY]


def _replace(library: Path, content: bytes) -> None:
    """In one step: a running broker has the old file mapped, and must not see it change."""
    new = library.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o755)
    new.replace(library)
