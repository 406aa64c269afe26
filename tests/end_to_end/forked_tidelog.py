"""Runs the command line in forks of one process that has imported it (`fork_server`).

`ForkedTidelog` has the interface of `subprocess.Popen`, as far as tests use it. `forked_program` is a program for
shells. The server starts at the first command of the tests' process and ends with it.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.end_to_end.fork_server import Call

START_S_MAX = 60.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""A process with one thread forks safely."""
PROGRAM = """#!{python} -SE
import os, socket, sys, json
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(call)
    server.recv(4, socket.MSG_WAITALL)
    sys.exit(int.from_bytes(server.recv(1) or bytes([255]), "big"))
"""


@functools.cache
def fork_server() -> Path:
    """The address of this process's server."""
    folder = tempfile.TemporaryDirectory(prefix="tidelog-forks-")
    address = Path(folder.name) / "socket"
    program = f"from tests.end_to_end.fork_server import serve; serve({str(address)!r})"
    environment = {**os.environ, **ONE_THREAD, "ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}  # as `serve` chooses
    server = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=environment)
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    give_up_at = time.monotonic() + START_S_MAX
    while not address.exists():
        assert server.poll() is None, "the fork server ended"
        assert time.monotonic() < give_up_at, "the fork server does not start"
        time.sleep(0.01)
    return address


def forked_program(folder: Path) -> Path:
    """Write a program `tidelog` into `folder`."""
    program = folder / "tidelog"
    program.write_text(PROGRAM.format(python=sys.executable, address=str(fork_server())))
    program.chmod(0o755)
    return program


class ForkedTidelog:
    """A command that runs. Streams are descriptors, files, `subprocess.PIPE` or `subprocess.DEVNULL`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._theirs: list[int] = []
        self.stdin = self._pipe(stdin, "wb")
        self.stdout = self._pipe(stdout, "rb")
        self.stderr = self._pipe(stderr, "rb")
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(fork_server()))
        call = Call(list(arguments), str(Path.cwd()), dict(os.environ if env is None else env)).encoded()
        socket.send_fds(self._connection, [call[:4]], self._theirs)
        self._connection.sendall(call[4:])
        self.pid = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL), "big")
        for descriptor in self._theirs:
            os.close(descriptor)

    def _pipe(self, stream: int | IO[bytes], mode: str) -> IO[bytes]:
        """Our end of a pipe; without a pipe an empty stream. Their end is noted."""
        if stream == subprocess.PIPE:
            reading, writing = os.pipe()
            ours, theirs = (writing, reading) if mode == "wb" else (reading, writing)
            self._theirs.append(theirs)
            return os.fdopen(ours, mode)
        if stream == subprocess.DEVNULL:
            self._theirs.append(os.open(os.devnull, os.O_RDWR))
        else:
            self._theirs.append(os.dup(stream if isinstance(stream, int) else stream.fileno()))
        return io.BytesIO()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; -9 if a signal killed it."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                code = self._connection.recv(1)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("tidelog", timeout or 0.0) from None
            self.returncode = code[0] if code else -signal.SIGKILL
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Close stdin, wait, and return what was printed: little, since nothing reads it meanwhile."""
        self.stdin.close()
        self.wait(timeout)
        with self.stdout, self.stderr:
            return self.stdout.read(), self.stderr.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stdin.close()
        if kind is not None:
            self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()


def run_forked(
    arguments: Sequence[str], stdin: bytes, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with ForkedTidelog(arguments, stdin=given, stdout=out, stderr=err, env=env) as running:
            code = running.wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["tidelog", *arguments], code, out.read(), err.read())
