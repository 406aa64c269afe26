"""An environment with only Python, make and the POSIX tools: no Java, Go, Maven, git, and an empty home.

``PATH`` has only a folder of links, and no other variable of the caller is passed on. bash is among the tools, because
Spark's start scripts need it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which

TOOLS = (
    *("awk", "basename", "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "expr", "find", "grep", "head"),
    *("id", "kill", "ln", "ls", "make", "mkdir", "mv", "od", "printf", "ps", "pwd", "rm", "rmdir", "sed", "sh"),
    *("sleep", "sort", "tail", "tee", "test", "touch", "tr", "true", "uname", "uniq", "wc", "xargs"),
)


@dataclass(frozen=True)
class BareMachine:
    """`folder` holds its home and its tools."""

    folder: Path

    def __post_init__(self) -> None:
        for part in (self.home, self.tools):
            part.mkdir()
        for tool in TOOLS:
            if program := which(tool):  # a small machine has some of them only in its shell
                (self.tools / tool).symlink_to(program)
        (self.tools / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tools(self) -> Path:
        return self.folder / "tools"

    def run(
        self, *command: str, cwd: Path, timeout_s: float, further: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` with this environment, and the variables in `further`."""
        environment = {"PATH": str(self.tools), "HOME": str(self.home), "LANG": "C.UTF-8", **(further or {})}
        return subprocess.run(
            [str(self.tools / command[0]), *command[1:]],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
