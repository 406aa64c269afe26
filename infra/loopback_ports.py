"""Ports of loopback for the servers we start: each is one process's choice until that process ends.

A server must find its port free when it starts, and again when it comes back after a kill. Three things could take it
meanwhile, and each is ruled out: an outgoing connection (the ports lie below those that the kernel gives to these),
another server (nobody listens on a port when it is chosen), another choice made before the server listens (a choice is
a lock on one byte of a file that all choosers of this machine share; a lock ends with its process).
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

_chosen: set[int] = set()  # locks do not hold against their own process


def free_port() -> int:
    """A port that nobody listens on, and that no other call gives out while this process lives."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them. Raises `OSError` if there are not."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        if port not in _chosen and _lock(port) and not _is_taken(port):
            _chosen.add(port)
            found.append(port)
    raise OSError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def _lock(port: int) -> bool:
    with suppress(BlockingIOError, PermissionError):  # the two words of POSIX for "another process holds it"
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        return True
    return False


@cache
def _locks() -> int:
    """The file of the locks, opened once: closing it would give them all up."""
    file = Path(tempfile.gettempdir()) / f"tidelog-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_taken(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return True
    return False
