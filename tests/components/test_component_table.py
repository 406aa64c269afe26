"""`python infra/components.py`: its output, what it makes, and its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from infra.component import CannotMake, Component, run_showing_progress, tools_folder, workshop
from infra.components import COMPONENTS, component, prepare
from infra.outlook import outlook, table
from tests.components.missing_summary import skipped_lines
from tests.components.required import missing_line

SCRIPT = Path(__file__).parents[2] / "infra" / "components.py"


def run(cache: Path, *arguments: str, require_all: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the script like on a machine with an empty cache and no programs on its path."""
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "", "TIDELOG_REQUIRE_ALL": "1" if require_all else ""}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_table_says_what_is_missing_what_is_left_out_and_how_to_get_it(tmp_path: Path) -> None:
    done = run(tmp_path, "prepare", "minio")
    assert done.returncode == 0
    assert re.search(r"^minio +MISSING \(no go\) +tests of S3 stores", done.stdout, re.MULTILINE)
    assert "  minio: install Go 1.24 or newer" in done.stdout


def test_a_missing_component_fails_where_all_are_required(tmp_path: Path) -> None:
    assert run(tmp_path, "prepare", "minio", require_all=True).returncode == 1
    assert run(tmp_path, "list", require_all=True).returncode == 1


def test_ready_components_are_listed_and_nothing_is_announced(tmp_path: Path) -> None:
    (tmp_path / "tidelog/tools").mkdir(parents=True)
    (tmp_path / "tidelog/tools/minio").write_bytes(b"")
    done = run(tmp_path, "prepare", "minio", require_all=True)
    assert done.returncode == 0
    assert re.search(r"^minio +ready +tests", done.stdout, re.MULTILINE)
    assert "fetches" not in done.stdout


def test_a_dry_run_shows_what_can_be_made_and_makes_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "prepare", "spark-s3", "--dry-run")
    assert done.returncode == 0
    assert re.search(r"^spark-s3 +not fetched +2 min, 674 MB +tests of Spark on S3$", done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_before_anything_is_made_the_table_says_how_long_that_takes(cache: Path) -> None:
    two = [component_at(cache / name, lambda: None, name) for name in ("one", "other")]
    text = table([outlook(each, may_make=True) for each in two])
    assert re.search(r"^one +to make, with sh +45 s, 100 MB +a test$", text, re.MULTILINE)
    assert "Making one, other takes about 1.5 min and fetches about 200 MB, once" in text


def test_every_component_says_what_needs_it() -> None:
    assert all(known.purpose and known.seconds and known.megabytes for known in COMPONENTS)


def test_the_end_of_a_run_repeats_what_was_left_out_and_why() -> None:
    minio = component("minio")
    reasons = [f"Skipped: {missing_line(minio)}"] * 2 + ["Skipped: needs Linux"]
    assert skipped_lines(reasons) == [
        f"2 tests for want of minio ({minio.purpose}). To run them: {minio.how}",
        "1 test: needs Linux",
    ]


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
    assert capsys.readouterr().out.count("thing: making it") == 1


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


def component_at(place: Path, make: Callable[[], None], name: str = "thing") -> Component:
    return Component(
        name, "a test", "try again", lambda: place if place.exists() else None, make, 45, 100, programs=("sh",)
    )
