"""SQL over a topic from the shell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.serving import ARCHIVES, Serving, records, serving

from tidelog.spark_connector import sql

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("broker")
    with serving(folder, f"file:{folder}/store", ARCHIVES) as serving_broker:
        serving_broker.create_topic("web", 1)
        serving_broker.produce("web", 0, records(0, 0, 300))
        yield serving_broker


def test_statements_run_over_one_snapshot_and_come_as_json(broker: Serving, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "tidelog.spark_connector.sql", "--broker", broker.url, "--topic", "web", "--json"),
        "SELECT count(*) AS n FROM records",
        "SELECT topic, max(offset) FROM records GROUP BY 1",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout.strip().splitlines()[-1])
    assert [(result["columns"], result["rows"]) for result in report["results"]] == [
        (["n"], [[300]]),
        (["topic", "max(offset)"], [["web", 299]]),
    ]
    assert report["java"].startswith("Java ")


def test_a_wrong_statement_is_explained_without_a_traceback(
    broker: Serving, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = spark.newSession()
    monkeypatch.setattr(session, "stop", lambda: None)  # other tests use its Spark
    monkeypatch.setattr(sql, "local_session", lambda *_, **__: session)
    monkeypatch.setattr("sys.argv", ["sql", "--broker", broker.url, "--topic", "web", "SELECT nothing FROM records"])
    assert sql.main() == sql.EXIT_REFUSED == 1
    answer = capsys.readouterr()
    assert "cannot be resolved" in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
