"""The session of docs/kafka-rest.md, run by the real curl, answers what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.http.conftest import SETTINGS
from tests.http.running_server import RunningServer

PAGE = Path(__file__).parents[3] / "docs" / "kafka-rest.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_session_of_the_page() -> None:
    page = PAGE.read_text()
    session, answers = re.findall(r"```(?:sh|json)\n(.*?)```", page, re.DOTALL)[:2]
    with RunningServer(replace(SETTINGS, num_partitions=1, shards=1)) as server:
        here = server.url.removeprefix("http://")
        script = re.sub(r"^(curl .*(?:\\\n.*)?)$", r"\1; echo", session, flags=re.MULTILINE)
        script = script.replace("\\; echo", "\\").replace("localhost:8080", here)
        run = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=30, check=True)
    said = re.sub(r'"timestamp":\d+', '"timestamp":TIME', run.stdout).replace(here, "localhost:8080")
    assert [line for line in said.splitlines() if line] == answers.splitlines()
