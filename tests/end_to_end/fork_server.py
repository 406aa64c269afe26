"""A process that has imported the command line and forks for each command, because most of a short command is imports.

`serve` takes commands on a socket, one connection each. A connection brings three descriptors for stdin, stdout and
stderr, and a `Call`. The fork answers with its process id, runs the command, and answers with the exit code. The end of
the connection without a code means that a signal killed it. The server ends when its stdin closes, so with its parent.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

LAZY = (
    "tidelog.client",
    "tidelog.coordinator.recovery.groups_check",
    "tidelog.coordinator.recovery.recover",
    "tidelog.services.runtime.serving",
    "tidelog.services.workers.process",
    "tidelog.storage.bucket.verify.verification",
    "rich.progress",
)
"""Modules that commands import when they run, beside those of the command line itself."""


class Call(NamedTuple):
    """A command: what the fork makes of itself before it runs `main`."""

    arguments: list[str]
    folder: str
    variables: dict[str, str]

    def encoded(self) -> bytes:
        body = json.dumps(self).encode()
        return len(body).to_bytes(4, "big") + body


def serve(address: str) -> None:
    """Take calls at the path `address`."""
    _import_all()
    gc.freeze()  # a collection in a fork would copy the memory of all modules
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.new")
        server.listen(16)
        Path(f"{address}.new").rename(address)
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _run(connection)
            connection.close()


def _reap(_number: int, _frame: FrameType | None) -> None:
    """Wait for the forks that have ended, so that their processor time counts as that of the tests."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _import_all() -> None:
    from tidelog.services import cli

    for found in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        importlib.import_module(found.name)
    for name in LAZY:
        importlib.import_module(name)


def _run(connection: socket.socket) -> None:
    from tidelog.services.cli.main import main

    head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        call = Call(*json.loads(stream.read(int.from_bytes(head, "big"))))
    for descriptor, standard in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.variables)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = ["tidelog", *call.arguments]
    connection.sendall(os.getpid().to_bytes(4, "big"))
    code = _code(main)
    connection.sendall(bytes([code & 255]))
    os._exit(code)


def _code(main: object) -> int:
    """Run `main` as the interpreter runs a program: with its last flush, and a traceback for a defect."""
    assert callable(main)
    try:
        code = int(main())
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:  # the fork must not return to the server's loop
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return code
