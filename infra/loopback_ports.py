"""Loopback ports for servers that we start. A chosen port belongs to one process until that process ends.

A server must find its port free when it starts, and again when it restarts after a kill. Three things could take the
port meanwhile; none can happen:

- An outgoing connection: the ports are below the range that the kernel uses for these.
- Another server: only a port without a listener is chosen.
- Another choice before the server listens: a choice is a lock on one byte of a file that all processes of this machine
  share. The lock ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)

_chosen: set[int] = set()  # a process is not stopped by its own locks


def free_port() -> int:
    """A port without a listener, which no other call returns while this process lives."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """`count` such ports. Raises `OSError` if there are not enough."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        if port not in _chosen and _lock(port) and not _is_taken(port):
            _chosen.add(port)
            found.append(port)
    raise OSError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def _lock(port: int) -> bool:
    with suppress(BlockingIOError, PermissionError):  # in POSIX, either means that another process holds it
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        return True
    return False


@cache
def _locks() -> int:
    """The file of the locks, opened once, because closing it would release all of them."""
    file = Path(tempfile.gettempdir()) / f"tidelog-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_taken(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return True
    return False
