"""What every row gets: sizes for a full or a quick run, folders, payload files, processes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.component import cache_folder

from benchmarks.payloads import payload_file
from benchmarks.processes import Children


@dataclass(frozen=True)
class Bench:
    """One run. `scratch` is a folder of its own for logs and data, on the disk under test."""

    quick: bool
    rounds: int
    scratch: Path
    children: Children

    def scaled(self, full: int) -> int:
        """A count of records for this run: a twentieth in a quick one."""
        return max(1, full // 20) if self.quick else full

    def payload(self, kind: str) -> Path:
        return payload_file(cache_folder() / "payloads", kind)

    def fresh_folder(self, name: str) -> Path:
        """An empty folder; what an earlier row left there is deleted."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder
