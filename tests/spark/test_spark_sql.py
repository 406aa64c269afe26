"""SQL over a topic from the shell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.serving import ARCHIVES, Serving, records, serving

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("broker")
    with serving(folder, f"file:{folder}/store", ARCHIVES) as serving_broker:
        serving_broker.create_topic("web", 1)
        serving_broker.produce("web", 0, records(0, 0, 300))
        yield serving_broker


def run_sql(broker: Serving, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog.spark_connector.sql", "--broker", broker.url, "--topic", "web"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=folder)


def test_statements_run_over_one_snapshot_and_come_as_json(broker: Serving, tmp_path: Path) -> None:
    answer = run_sql(
        broker,
        tmp_path,
        "--json",
        "SELECT count(*) AS n FROM records",
        "SELECT topic, max(offset) FROM records GROUP BY 1",
    )

    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout.strip().splitlines()[-1])
    assert [(result["columns"], result["rows"]) for result in report["results"]] == [
        (["n"], [[300]]),
        (["topic", "max(offset)"], [["web", 299]]),
    ]
    assert report["java"].startswith("Java ")


def test_a_wrong_statement_is_explained_without_a_traceback(broker: Serving, tmp_path: Path) -> None:
    answer = run_sql(broker, tmp_path, "SELECT nothing FROM records")

    assert answer.returncode == 1
    assert "cannot be resolved" in answer.stderr
    assert "Traceback" not in answer.stderr
