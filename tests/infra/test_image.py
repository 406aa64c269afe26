"""The Dockerfile, tested without a container engine: linted, and its files and commands checked."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from infra.loopback_ports import free_port
from tests.coordinator.stepped_clock import SteppedClock
from tests.end_to_end.broker_process import TIDELOG, BrokerProcess, wait_until
from tests.infra import compose_file

from tidelog.services.runtime.container_health import ALIVE_S_MAX, DEFAULT_PORT, Unhealthy, check
from tidelog.services.workers.alive_file import RENEWAL_S, kept_alive

ROOT = compose_file.ROOT
FILE = ROOT / "infra/docker/Dockerfile"


def instructions(name: str) -> list[str]:
    """The text after each `name`, with continued lines joined."""
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


def test_copied_files_are_in_the_context_and_the_wheels_inputs_are_copied() -> None:
    sources = [part for line in instructions("COPY") if "--from" not in line for part in shlex.split(line)[:-1]]
    for source in sources:
        assert any(fnmatch.fnmatch(allowed, f"{source}*") for allowed in _allowed()), source
        assert (ROOT / source).exists()
    packages = {"storage", "coordinator", "services", "client", "wire", "record_batches", "spark_connector"}
    assert {*packages, "hatch_build.py", "build_steps"} <= set(sources)


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


@pytest.fixture
def compactor(broker: BrokerProcess, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A compactor of an empty bucket, with the variables that Kubernetes sets for a Service named tidelog."""
    (tmp_path / "data").mkdir()
    command = [*TIDELOG, "compactor", "--store", f"file:{tmp_path / 'data'}", "--alive-file", str(tmp_path / "alive")]
    links = {"TIDELOG_SERVICE_HOST": "10.0.0.1", "TIDELOG_SERVICE_PORT": "8080", "TIDELOG_PORT": "tcp://10.0.0.1:8080"}
    process = subprocess.Popen(command, env={**os.environ, **links}, stderr=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_the_compose_files_health_check_sees_a_broker_that_is_well_and_one_that_is_not_there(
    broker: BrokerProcess,
) -> None:
    python, flag, program = compose_file.services()["broker-1"]["healthcheck"]["test"][1:]
    assert (python, flag) == ("python", "-c")
    for port, well in ((broker.port, True), (free_port(), False)):
        command = [sys.executable, flag, program.replace("127.0.0.1:8080", f"127.0.0.1:{port}")]
        assert (subprocess.run(command, capture_output=True, check=False).returncode == 0) is well


def test_the_images_health_check_is_the_one_by_role() -> None:
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", FILE.read_text(), re.DOTALL)
    assert found is not None
    assert json.loads(found[1]) == ["python", "-m", "tidelog.services.runtime.container_health"]


@pytest.mark.parametrize("given", ["variable", "flag", "equals"])
def test_a_broker_is_healthy_while_it_answers(given: str, broker: BrokerProcess) -> None:
    def check_at(port: int) -> None:
        flags = {"variable": [], "flag": ["--port", str(port)], "equals": [f"--port={port}"]}[given]
        check(["tidelog", "serve", *flags], {"TIDELOG_PORT": str(port)} if given == "variable" else {}, 0.0)

    check_at(broker.port)
    with pytest.raises(Unhealthy, match="/healthz"):
        check_at(free_port())


def test_a_compactor_is_healthy_while_it_renews_its_file(compactor: subprocess.Popen[bytes], tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    command = ["python", "tidelog", "compactor", "--alive-file", str(alive)]
    wait_until(alive.exists, 30.0, lambda: "no alive file")
    renewed_s = alive.stat().st_mtime
    check(command, {}, renewed_s + ALIVE_S_MAX)
    with pytest.raises(Unhealthy, match="the compactor hangs"):
        check(command, {}, renewed_s + ALIVE_S_MAX + 1)

    compactor.terminate()
    _, log = compactor.communicate(timeout=30)
    assert compactor.returncode == 0
    assert b"ignored variables that Kubernetes made of Services" in log
    with pytest.raises(Unhealthy, match="No such file"):
        check(command, {}, renewed_s)


async def test_the_file_is_renewed_again_and_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "alive", SteppedClock()
    async with kept_alive(file, clock):
        for _ in range(2):
            os.utime(file, (0, 0))
            await clock.run(RENEWAL_S)
            assert file.stat().st_mtime > 0
    assert not file.exists()
    assert RENEWAL_S * 3 < ALIVE_S_MAX


def test_other_commands_are_healthy_while_they_run() -> None:
    check(["tidelog", "topic", "list"], {}, 0.0)
    check(["tidelog", "compactor"], {}, 0.0)


def test_a_port_that_kubernetes_made_of_a_service_is_not_asked() -> None:
    with pytest.raises(Unhealthy, match=f"127.0.0.1:{DEFAULT_PORT}/healthz"):
        check(["tidelog", "serve"], {"TIDELOG_PORT": "tcp://10.0.0.1:1"}, 0.0)


def test_a_place_for_spills_is_there_and_belongs_to_the_user() -> None:
    last = FILE.read_text().rpartition("\nFROM ")[2]
    folder = re.findall(r"TIDELOG_ARCHIVER_SPILL_FOLDER=(\S+)", last)
    assert folder == [compose_file.SPILL_FOLDER]
    assert f"COPY --from=build --chown=65532:65532 /spill {folder[0]}" in last
