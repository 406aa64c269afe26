"""One etcd node in a process of its own."""

from __future__ import annotations

from pathlib import Path

import httpx
from infra.etcd import ETCD
from infra.loopback_ports import free_port

from benchmarks.processes import Child, Children


def missing() -> str:
    """Say why etcd cannot run here and how to get it; empty if it can run."""
    return "" if ETCD.find() else f"no etcd: {ETCD.how}"


class EtcdNode:
    """Listens at `endpoint`."""

    def __init__(self, children: Children, folder: Path) -> None:
        program = ETCD.find()
        assert program is not None
        self._children = children
        self.endpoint, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        arguments = {
            "data-dir": folder / "etcd",
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
        self.process: Child = children.start("etcd", [program, *words])
        self.process.wait_until(self._ready)

    def stop(self) -> None:
        self._children.stop(self.process)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.endpoint}/health", timeout=1).status_code == 200
        except httpx.TransportError:
            return False
