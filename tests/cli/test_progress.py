"""A progress bar on a terminal, plain lines otherwise."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog
from tests.end_to_end.forked_tidelog import ForkedTidelog

from tidelog.services.cli import progress
from tidelog.services.cli.progress import Progress


def test_a_bar_shows_on_a_terminal_and_the_count_stays(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"line\n" * 300_000)
    ours, theirs = pty.openpty()
    command = ["topic", "produce", "watched", "--broker", broker.url]
    with file.open("rb") as lines:
        producing = ForkedTidelog(command, stdin=lines, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = everything_from(ours)
    printed, _ = producing.communicate(timeout=60)
    assert (producing.returncode, printed) == (0, b"")
    assert b"to watched" in shown
    assert shown.rstrip().endswith(b"300,000 records to watched")


def test_without_a_terminal_the_count_is_a_plain_line(broker: BrokerProcess) -> None:
    produced = run_tidelog(["topic", "produce", "unwatched"], broker=broker.url, stdin=b"x\n")
    assert (produced.stdout, produced.stderr) == (b"", b"tidelog: 1 records to unwatched\n")


def test_long_work_prints_plain_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    with Progress("to web", 2_000_000) as work:
        work.records = 12_345
        work.advance(1_000_000)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "tidelog: to web: 12,345 records, 1.0 MB of 2.0 MB\n")


def everything_from(terminal: int) -> bytes:
    """Everything written to the other end of a pty until it closes, which Linux reports as an error."""
    pieces = []
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:
            piece = b""
        if not piece:
            os.close(terminal)
            return b"".join(pieces)
        pieces.append(piece)
