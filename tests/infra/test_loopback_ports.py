"""Ports of loopback: two choosers never get the same port, in one process or in several."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from infra import loopback_ports
from infra.loopback_ports import HOST, free_port, free_ports

CHOOSER = """
import sys
from infra import loopback_ports
loopback_ports.PORTS = range(20_000, 20_060)
print(*loopback_ports.free_ports(25), flush=True)
sys.stdin.read()
"""


def test_a_port_is_given_once() -> None:
    assert len(set(free_ports(50)) | {free_port() for _ in range(50)}) == 100


def test_processes_that_choose_from_few_get_different_ones_until_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the folder of the locks; other tests choose ports at the same time
    with _chooser() as one:
        with _chooser() as other:
            assert not _chosen_by(one) & _chosen_by(other)
            assert _error_of_a_third() == "OSError: no 25 free ports between 20000 and 20060"
        assert _error_of_a_third() == ""


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(loopback_ports, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="no 1 free ports"):
            free_port()


def _chooser() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHOOSER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _chosen_by(chooser: subprocess.Popen[str]) -> set[str]:
    assert chooser.stdout is not None
    return set(chooser.stdout.readline().split())


def _error_of_a_third() -> str:
    ended = subprocess.run([sys.executable, "-c", CHOOSER], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return ended.stderr.strip().rpartition("\n")[2]
