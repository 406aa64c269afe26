"""How commands end when they are interrupted, must be confirmed, or start at a position that does not exist."""

from __future__ import annotations

import logging
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from infra.loopback_ports import free_port
from tests.cli.conftest import Tidelog
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.end_to_end.forked_tidelog import ForkedTidelog, run_forked

from tidelog.client import Admin, Producer
from tidelog.services.cli import main as command
from tidelog.services.cli import options


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A socket that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (["topic", "list"], signal.SIGINT, 130),
        (["topic", "produce", "t"], signal.SIGINT, 130),
        (["topic", "consume", "t"], signal.SIGTERM, 143),
        (["cluster", "health"], signal.SIGTERM, 143),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(value),
)
def test_a_signal_ends_a_command_that_waits_for_its_broker(
    silent: socket.socket, arguments: list[str], number: int, code: int
) -> None:
    broker = f"http://127.0.0.1:{silent.getsockname()[1]}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ForkedTidelog([*arguments, "--broker", broker], **pipes) as running:
        connection, _ = silent.accept()
        running.send_signal(number)
        _, errors = running.communicate(timeout=30)
        connection.close()
    assert running.returncode == code
    assert b"Traceback" not in errors
    assert b"Aborted" not in errors


def test_sigterm_keeps_the_lines_that_were_read_and_says_where_to_continue(
    tidelog: Tidelog, broker: BrokerProcess
) -> None:
    tidelog("topic", "create", "ended")
    command_line = ["topic", "produce", "ended", "--broker", broker.url]
    with ForkedTidelog(command_line, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producing:
        producing.stdin.write(b"first\nsecond\nnot ended")
        producing.stdin.flush()
        with Admin(broker.url) as admin:
            wait_until(lambda: admin.topic("ended").records == 2, 60.0)
        producing.send_signal(signal.SIGTERM)
        _, errors = producing.communicate(timeout=30)
    assert producing.returncode == 143
    assert b"stopped: 2 records are in ended. To continue with the same input: --resume-from-line 3" in errors


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process, which is seconds faster."""
    monkeypatch.setattr(sys, "argv", ["tidelog", *arguments])
    before = signal.getsignal(signal.SIGTERM)
    try:
        return command.main()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess) -> Callable[..., int]:
    monkeypatch.setenv("TIDELOG_BROKER", broker.url)
    return lambda *arguments: run_here(monkeypatch, *arguments)


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_a_person_is_asked_before_a_topic_is_deleted(broker: BrokerProcess, answer: bytes, code: int) -> None:
    with Admin(broker.url) as admin:
        if "asked" not in {topic.name for topic in admin.topics()}:
            admin.create_topic("asked")
        ours, theirs = pty.openpty()
        command_line = ["topic", "delete", "asked", "--broker", broker.url]
        with ForkedTidelog(command_line, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
            os.write(ours, answer)
            _, told = asking.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        assert asking.returncode == code
        assert b"Delete asked and its 0 records? [y/N]" in told
        assert ("asked" in {topic.name for topic in admin.topics()}) is bool(code)


def test_an_offset_beyond_the_end_is_reported(
    broker: BrokerProcess, here: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    with Admin(broker.url) as admin:
        admin.create_topic("beyond", 2)
    with Producer(broker.url, "beyond") as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(value, partition=0)
        producer.send(b"d", partition=1)
    for follow in ([], ["-e"]):
        assert here("topic", "consume", "beyond", "-o", "4", *follow) == 2
        told = capfd.readouterr()
        assert told.out == ""
        assert "offset 4 is beyond the end of beyond: its longest partition ends at 3" in told.err
    assert here("topic", "consume", "beyond", "-o", "2", "-e") == 0
    told = capfd.readouterr()
    assert told.out == "c\n"
    assert told.err == "tidelog: beyond/1 ends at offset 1, before 2: it is read from its end on\n"
    assert here("topic", "consume", "beyond", "-o", "3", "-e", "-p", "0") == 0
    assert capfd.readouterr() == ("", "")
    assert here("topic", "consume", "beyond", "-o", "@2999-01-01T00:00:00Z", "-e") == 0
    assert "no record of beyond is at or after 2999-01-01T00:00:00Z yet" in capfd.readouterr().err


def test_names_of_topics_are_completed(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with Admin(broker.url) as admin:
        for name in ("completed-1", "completed-2"):
            admin.create_topic(name)
    completing = {
        "_TIDELOG_COMPLETE": "complete_bash",
        "COMP_WORDS": "tidelog topic describe completed",
        "COMP_CWORD": "3",
    }
    environment = {**os.environ, **completing, "TIDELOG_BROKER": broker.url}
    shown = run_forked([], b"", environment, 60.0)
    assert shown.stdout.split() == [b"completed-1", b"completed-2"]


def test_nothing_is_completed_without_a_broker(
    silent: socket.socket, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tidelog.client"), "disabled", False)
    monkeypatch.setattr(options, "COMPLETION_S_MAX", 0.2)
    context = typer.Context(typer.main.get_command(command.app))
    for port in (free_port(), silent.getsockname()[1]):
        context.params["broker"] = f"http://127.0.0.1:{port}"
        assert options.topic_names(context, "") == []
    assert capfd.readouterr() == ("", "")


def test_a_wrong_address_is_reported_at_once(
    here: Callable[..., int], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lines").touch()
    file = str(tmp_path / "lines")
    nobody = f"http://127.0.0.1:{free_port()}"
    assert here("topic", "produce", "t", "-f", file, "--timeout", "0.3", "--broker", nobody) == 3
    lines = capfd.readouterr().err.splitlines()
    assert re.match(rf"tidelog: no broker answers at {nobody} .* Trying again for up to 0 s\.", lines[0])
    assert len(lines) == 2
