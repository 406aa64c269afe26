"""The Dockerfile, as far as it can be tried where no container engine runs: linted, its files and commands checked."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from infra.loopback_ports import free_port
from tests.end_to_end.broker_process import BrokerProcess
from tests.infra import compose_file

ROOT = compose_file.ROOT
FILE = ROOT / "infra/docker/Dockerfile"


def instructions(name: str) -> list[str]:
    """What follows each `name`, continued lines joined."""
    lines = re.sub(r"\\\n", " ", FILE.read_text()).splitlines()
    return [line.partition(" ")[2].strip() for line in lines if line.startswith(f"{name} ")]


def test_hadolint_finds_nothing() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, FILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_last_stage_is_not_root_by_number_and_builds_nothing() -> None:
    last = FILE.read_text().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE) == ["65532:65532"]
    assert not re.search(r"^RUN ", last, re.MULTILINE)
    assert re.findall(r"^STOPSIGNAL (\S+)", last, re.MULTILINE) == ["SIGTERM"]
    assert 'ENTRYPOINT ["tidelog"]\nCMD ["serve"]' in last


def test_the_base_is_pinned_to_a_patch_release() -> None:
    assert re.fullmatch(r"PYTHON=docker\.io/library/python:3\.\d+\.\d+-slim-\w+", instructions("ARG")[0])


def test_it_is_labelled_with_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"VERSION={project['version']}" in instructions("ARG")
    assert f'licenses="{project["license"]}"' in FILE.read_text()


def test_what_is_copied_is_in_the_context_and_what_the_wheel_needs_is_copied() -> None:
    sources = [part for line in instructions("COPY") if "--from" not in line for part in shlex.split(line)[:-1]]
    for source in sources:
        assert any(fnmatch.fnmatch(allowed, f"{source}*") for allowed in _allowed()), source
        assert (ROOT / source).exists()
    assert {"storage", "coordinator", "services", "client", "spark_connector", "hatch_build.py"} <= set(sources)


def test_nothing_else_reaches_the_context() -> None:
    lines = _ignore_lines()
    assert lines[0] == "*"
    assert all(line.startswith(("!", "**/")) for line in lines[1:])
    assert not [allowed for allowed in _allowed() if re.search("env|secret|git|data", allowed)]


def _ignore_lines() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _allowed() -> list[str]:
    return [line[1:] for line in _ignore_lines() if line.startswith("!")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), {"store": "memory:"})
    process.start()
    yield process
    process.stop()


def checks() -> dict[str, Sequence[str]]:
    """The health checks that are Python, by where they stand."""
    own = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", FILE.read_text(), re.DOTALL)
    assert own is not None
    words: list[str] = json.loads(own[1])
    return {"Dockerfile": words, "compose": compose_file.services()["broker-1"]["healthcheck"]["test"][1:]}


@pytest.mark.parametrize("place", ["Dockerfile", "compose"])
def test_a_health_check_sees_a_broker_that_is_well_and_one_that_is_not_there(place: str, broker: BrokerProcess) -> None:
    assert _exit_code(checks()[place], broker.port) == 0
    assert _exit_code(checks()[place], free_port()) != 0


def _exit_code(command: Sequence[str], port: int) -> int:
    assert command[:2] == ["python", "-c"]
    program = command[2].replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    environment = {**os.environ, "TIDELOG_PORT": str(port)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    return done.returncode
