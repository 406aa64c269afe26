"""`python infra/components.py`: what it says, what it makes, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from infra.component import CannotMake, Component, run_showing_progress, tools_folder, workshop
from infra.components import prepare

SCRIPT = Path(__file__).parents[2] / "infra" / "components.py"


def run(cache: Path, *arguments: str, require_all: bool = False) -> subprocess.CompletedProcess[str]:
    """The script on a machine with an empty cache and no programs on its path."""
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "", "TIDELOG_REQUIRE_ALL": "1" if require_all else ""}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_what_is_missing_is_told_with_how_to_get_it(tmp_path: Path) -> None:
    done = run(tmp_path, "prepare", "minio")
    assert done.returncode == 0
    assert "minio: missing; there is no Go here; install Go" in done.stdout


def test_what_is_missing_fails_where_all_are_required(tmp_path: Path) -> None:
    assert run(tmp_path, "prepare", "minio", require_all=True).returncode == 1
    assert run(tmp_path, "list", require_all=True).returncode == 1


def test_what_is_there_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "tidelog/tools").mkdir(parents=True)
    (tmp_path / "tidelog/tools/minio").write_bytes(b"")
    done = run(tmp_path, "prepare", "minio", require_all=True)
    assert done.returncode == 0
    assert f"minio: ready ({tmp_path / 'tidelog/tools/minio'})" in done.stdout


def test_an_unknown_name_is_answered_with_the_known(tmp_path: Path) -> None:
    done = run(tmp_path, "prepare", "minoi")
    assert done.returncode == 2
    assert "known are minio" in done.stderr


def test_two_at_once_make_it_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both_started, made = threading.Barrier(2), []

    def make() -> None:
        made.append(1)
        place.write_bytes(b"made")

    place = cache / "thing"
    thing = component_at(place, make)
    answers: list[bool] = []

    def prepare_it() -> None:
        both_started.wait()
        answers.append(prepare(thing))

    threads = [threading.Thread(target=prepare_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (answers, made) == ([True, True], [1])
    assert capsys.readouterr().out.count("thing: ready") == 2


def test_a_failed_make_leaves_nothing_and_says_why(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> None:
        with workshop(tools_folder()) as folder:
            (folder / "half").write_bytes(b"")
            run_showing_progress("thing", [sys.executable, "-c", "print('no network'); exit(3)"], {})

    assert not prepare(component_at(cache / "thing", make))
    assert "no network" in capsys.readouterr().out
    assert list(tools_folder().iterdir()) == []


def test_a_long_command_gets_its_environment(cache: Path) -> None:
    program = "import os, sys; sys.exit(os.environ['GIVEN'] != 'yes')"
    run_showing_progress("thing", [sys.executable, "-c", program], {"GIVEN": "yes"})
    with pytest.raises(CannotMake):
        run_showing_progress("thing", [sys.executable, "-c", program], {"GIVEN": "no"})
    assert "GIVEN" not in os.environ


def component_at(place: Path, make: Callable[[], None]) -> Component:
    return Component("thing", "a test", "try again", lambda: place if place.exists() else None, make)
