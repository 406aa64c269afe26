"""The context of a row: sizes for a full or a quick run, folders, payload files, processes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.component import cache_folder

from benchmarks.payloads import payload_file
from benchmarks.processes import Children


@dataclass(frozen=True)
class Bench:
    """One run. `scratch` is its folder for logs and data, on the disk under test."""

    quick: bool
    rounds: int
    scratch: Path
    children: Children

    def scaled(self, full: int) -> int:
        """Return the number of records for this run: a twentieth of `full` in a quick run."""
        return max(1, full // 20) if self.quick else full

    def payload(self, kind: str) -> Path:
        return payload_file(cache_folder() / "payloads", kind)

    def fresh_folder(self, name: str) -> Path:
        """Create an empty folder. Deletes the data that an earlier row left there."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder
