"""The examples of ``docs/cli.md`` run as written, in a shell whose `tidelog` starts quickly (`forked_tidelog`)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Tidelog
from tests.end_to_end.broker_process import BrokerProcess
from tests.end_to_end.forked_tidelog import forked_program

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.timeout(600)  # many processes, on a busy machine
def test_the_examples_of_the_page_run(broker: BrokerProcess, tidelog: Tidelog, tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    commands = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    assert len(commands) > 10
    path = f"{forked_program(tmp_path).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TIDELOG_BROKER": broker.url}
    for command in commands:
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, env=environment, check=False
        )
        assert ended.returncode == 0, f"{command}: {ended.stderr.decode()}"
    assert tidelog("topic", "consume", "lines", "-e", "-f", "%k|%v;").stdout == b"|one;|two;user-7|hello;"
