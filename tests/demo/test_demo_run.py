"""The demo as a user runs it: a process, its output, its exit code. `tests/end_to_end/test_bare_machine.py` runs all of
it, with Spark."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from demo import story
from demo.__main__ import demo
from demo.agreement import Fingerprint
from demo.narrator import Narrator, Rates
from rich.console import Console
from typer.testing import CliRunner

from tidelog.storage.runtime import SystemClock

ROOT = Path(__file__).parents[2]


def run_demo(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo", "--folder", str(folder / "demo"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)


def test_a_file_is_produced_and_its_data_is_left_for_the_user(tmp_path: Path) -> None:
    source = tmp_path / "app.log.gz"
    source.write_bytes(gzip.compress(b"".join(b"%d a line of a log\n" % n for n in range(30_000))))
    done = run_demo("--file", source, "--no-spark", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each record is there once and in order" in done.stdout
    assert f"tidelog serve --config {tmp_path / 'demo' / 'tidelog.toml'}" in done.stdout
    assert any((tmp_path / "demo" / "data" / "topics").rglob("*.parquet"))


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "precious").touch()
    done = run_demo("--events", 10, folder=tmp_path)
    assert done.returncode != 0
    assert "is not an empty folder" in done.stderr


def test_a_number_that_differs_ends_it_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_nothing(*_: object) -> list[Fingerprint]:
        return [Fingerprint() for _ in range(story.PARTITIONS)]

    monkeypatch.setattr(story, "read_back", read_nothing)
    monkeypatch.setattr(story, "ARCHIVE_WAIT_SECONDS", 0.0)  # these few records stay hot
    app = typer.Typer()
    app.command()(demo)
    arguments = ["--events", "2000", "--no-spark", "--no-crash", "--folder", str(tmp_path / "demo")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "NUMBERS DIFFER" in done.output


def test_rates_are_one_live_line_on_a_terminal(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as out:
        narrator = Narrator(Console(file=out, force_terminal=True, width=100), SystemClock())
        with Rates(narrator, "acknowledged") as rates:
            rates.add(10, 1000)
        out.seek(0)
        assert "10 records" in out.read()
