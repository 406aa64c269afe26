"""The rows of manifests run on the local disk, with a twentieth of the segments."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.test_bench_quick import bench


def test_a_quick_run_of_manifest_size(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "manifest-size", keep_cache=True)
    assert done.returncode == 0, done.stderr
    append, opened, planned = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert [row["name"] for row in (append, opened, planned)] == ["manifest-append", "manifest-open", "expiry-plan"]
    assert append["measured"] < 1.1
    assert opened["measured"] == 3
    assert planned["measured"] < 100
