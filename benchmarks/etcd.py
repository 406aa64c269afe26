"""etcd nodes, each in a process of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx
from infra.etcd import ETCD
from infra.loopback_ports import free_port

from benchmarks.processes import Child, Children


def missing() -> str:
    """Say why etcd cannot run here and how to get it; empty if it can run."""
    return "" if ETCD.find() else f"no etcd: {ETCD.how}"


class EtcdNode:
    """A cluster of one. Listens at `endpoint`."""

    def __init__(self, children: Children, folder: Path) -> None:
        self._nodes = EtcdNodes(children, folder, 1)
        self.endpoint = self._nodes.endpoints[0]
        self.process = self._nodes.processes[0]

    def stop(self) -> None:
        self._nodes.stop()


class EtcdNodes:
    """A cluster of `count` nodes, which listen at `endpoints`."""

    def __init__(self, children: Children, folder: Path, count: int) -> None:
        program = ETCD.find()
        assert program is not None
        self._children = children
        self.endpoints = [_address() for _ in range(count)]
        peers = [_address() for _ in range(count)]
        members = ",".join(f"etcd-{number}={peer}" for number, peer in enumerate(peers))
        self.processes: list[Child] = []
        for number, (endpoint, peer) in enumerate(zip(self.endpoints, peers, strict=True)):
            arguments = {
                "name": f"etcd-{number}",
                "data-dir": folder / f"etcd-{number}",
                "listen-client-urls": endpoint,
                "advertise-client-urls": endpoint,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": members,
            }
            words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
            self.processes.append(children.start(f"etcd-{number}", [program, *words]))
        for endpoint, process in zip(self.endpoints, self.processes, strict=True):
            process.wait_until(partial(_is_ready, endpoint))

    def stop(self) -> None:
        for process in self.processes:
            self._children.stop(process)


def _address() -> str:
    return f"http://127.0.0.1:{free_port()}"


def _is_ready(endpoint: str) -> bool:
    try:
        return httpx.get(f"{endpoint}/health", timeout=1).status_code == 200
    except httpx.TransportError:
        return False
