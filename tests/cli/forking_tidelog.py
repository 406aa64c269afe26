"""Runs the command line in forks of a process that has imported it, because most of a short command is its imports.

`ForkingTidelog` starts that process and writes a program `tidelog` into a folder. The program passes its arguments,
variables, folder, stdin, stdout and stderr on, and ends with the exit code of the fork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.broker_process import wait_until

PROGRAM = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(told).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(told)
    sys.exit(int.from_bytes(server.recv(1) or bytes([255]), "big"))
"""


class ForkingTidelog:
    """`program` runs the command line until `stop`."""

    def __init__(self, folder: Path) -> None:
        address, self.program = folder / "socket", folder / "tidelog"
        self.program.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
        self.program.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({str(address)!r})"]
        )
        wait_until(address.exists, 60.0, still=lambda: self._process.poll() is None)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


def serve(address: str) -> None:
    """Fork for each call, without an end."""

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.new")
        server.listen(16)
        Path(f"{address}.new").rename(address)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                _run(connection)
            connection.close()


def _run(connection: socket.socket) -> None:
    from tidelog.services.cli.main import main

    head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb", buffering=0) as stream:
        told = b""
        while len(told) < int.from_bytes(head, "big"):
            told += stream.read(1 << 16)
    arguments, folder, variables = json.loads(told)
    for descriptor, standard in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = ["tidelog", *arguments]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([code & 255]))
    os._exit(code)
