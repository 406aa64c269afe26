"""The commands of the task pages work as written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.running_server import RunningServer

from tidelog.services.settings.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8080"
CURLRC = "fail-with-body\nsilent\nshow-error\nmax-time = 3\n"

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None and not os.environ.get("TIDELOG_REQUIRE_ALL"),
    reason="the task pages use curl: install it with the system's package manager",
)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of `language` in a page."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def broker_url() -> Iterator[str]:
    """A broker in the state after produce.md, with which consume.md begins."""
    with RunningServer(Settings(store="memory:")) as running:
        yield running.url


def shell(block: str, url: str, home: Path) -> str:
    (home / ".curlrc").write_text(CURLRC)
    environment = {"PATH": os.environ["PATH"], "CURL_HOME": str(home)}
    run = subprocess.run(
        ["bash", "-eu", "-c", block.replace(ADDRESS, url)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"{block}\n{run.stdout}\n{run.stderr}"
    return run.stdout


def test_every_command_of_the_task_pages_works(broker_url: str, tmp_path: Path) -> None:
    said = {
        page: [shell(block, broker_url, tmp_path) for block in blocks(page, "sh")]
        for page in ("produce.md", "consume.md", "compaction.md", "operate.md")
    }
    counts = {page: len(outputs) for page, outputs in said.items()}
    assert counts == {"produce.md": 6, "consume.md": 7, "compaction.md": 2, "operate.md": 1}
    assert '"duplicate":true' in said["produce.md"][4]
    assert said["consume.md"][-2].strip() == "5"
    assert all(output for page, outputs in said.items() for output in outputs if output is not said["consume.md"][3])


def test_the_python_of_the_task_pages_works(broker_url: str) -> None:
    for block in blocks("produce.md", "python"):
        run = subprocess.run(
            [sys.executable, "-c", block.replace(ADDRESS, broker_url)], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr


@pytest.fixture
def group_url() -> Iterator[str]:
    """A broker with two records in the topic of groups.md."""
    with RunningServer(Settings(store="memory:")) as running:
        records = json.dumps({"records": [{"value": "one"}, {"value": "two"}]}).encode()
        head = {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{running.url}/v1/topics/web/records", records, head), timeout=10
        ) as answer:
            assert answer.status == 200
        yield running.url


@pytest.mark.skipif(
    shutil.which("jq") is None and not os.environ.get("TIDELOG_REQUIRE_ALL"),
    reason="groups.md uses jq: install it with the system's package manager",
)
def test_a_group_in_three_calls_of_curl(group_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    three_calls, seeks, lag = blocks("groups.md", "sh")
    left = json.loads(shell(three_calls, group_url, tmp_path))
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("1.json", "2.json"))
    assert sorted(record["value"] for record in first["records"]) == ["one", "two"]
    assert second["records"] == []
    assert left["assignment"] == []
    assert json.loads(shell(lag, group_url, tmp_path))["lag"] == 0, "all is committed"
    assert shell(seeks, group_url, tmp_path).count('"before":2,"after":0') == 2
    assert json.loads(shell(lag, group_url, tmp_path))["lag"] == 2


def test_a_group_in_ten_lines_of_python(group_url: str) -> None:
    (block,) = blocks("groups.md", "python")
    assert len(block.splitlines()) <= 10
    with subprocess.Popen(
        [sys.executable, "-u", "-c", block.replace(ADDRESS, group_url)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline().split() for _ in range(2)]
        run.kill()
    assert [(topic, value) for topic, _, _, value in lines] == [("web", "b'one'"), ("web", "b'two'")]
