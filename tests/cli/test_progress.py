"""A progress bar where a person watches, and only there."""

import os
import pty
import subprocess
from pathlib import Path

from tests.end_to_end.broker_process import TIDELOG, BrokerProcess, run_tidelog


def test_a_bar_shows_on_a_terminal_and_the_count_stays(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"line\n" * 300_000)
    ours, theirs = pty.openpty()
    command = [*TIDELOG, "topic", "produce", "watched", "--broker", broker.url]
    with file.open("rb") as lines:
        producing = subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = everything_from(ours)
    printed, _ = producing.communicate(timeout=60)
    assert (producing.returncode, printed) == (0, b"")
    assert b"to watched" in shown
    assert shown.rstrip().endswith(b"300,000 records to watched")


def test_without_a_terminal_nothing_is_said(broker: BrokerProcess) -> None:
    produced = run_tidelog(["topic", "produce", "unwatched"], broker=broker.url, stdin=b"x\n")
    assert (produced.stdout, produced.stderr) == (b"", b"")


def everything_from(terminal: int) -> bytes:
    """What is written to the other end of a pty until it closes, which Linux tells by an error."""
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
