"""SQL over a topic from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

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


@pytest.fixture
def run(broker: Serving, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command on the Spark of all tests. `make demo` runs it with a Spark of its own."""

    def run_command(*arguments: str) -> int:
        session = spark.newSession()
        monkeypatch.setattr(session, "stop", lambda: None)  # other tests use its Spark
        monkeypatch.setattr(sql, "local_session", lambda *_, **__: session)
        monkeypatch.setattr("sys.argv", ["sql", "--broker", broker.url, "--topic", "web", *arguments])
        return sql.main()

    return run_command


def test_statements_run_over_one_snapshot_and_come_as_json(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    statements = ("SELECT count(*) AS n FROM records", "SELECT topic, max(offset) FROM records GROUP BY 1")
    assert run("--json", *statements) == 0
    report = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert [(result["columns"], result["rows"]) for result in report["results"]] == [
        (["n"], [[300]]),
        (["topic", "max(offset)"], [["web", 299]]),
    ]
    assert report["java"].startswith("Java ")


def test_a_wrong_statement_is_explained_without_a_traceback(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("SELECT nothing FROM records") == sql.EXIT_REFUSED == 1
    answer = capsys.readouterr()
    assert "cannot be resolved" in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
