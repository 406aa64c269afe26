"""etcd as real processes on loopback: one server, or a cluster of several that can be killed, paused and wiped.

This module does not use pytest, so that `make cluster` and the chaos runs can use it too; the fixtures are in
`tests/components/etcd.py`. Its ports are below those that the kernel gives to outgoing connections, so a server that
was killed finds its port free when it returns.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.loopback_ports import free_port

READY_S_MAX = 30.0
STOPPED_S_MAX = 10.0


class EtcdDidNotStart(Exception):
    """The message holds the end of the server's log."""


@dataclass(frozen=True)
class EtcdTls:
    """Files for a server with TLS for its clients. With `client_ca` it requires a certificate from them."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def arguments(self) -> list[str]:
        asked = ["--client-cert-auth", "--trusted-ca-file", str(self.client_ca)] if self.client_ca else []
        return ["--cert-file", str(self.certificate), "--key-file", str(self.key), *asked]


@dataclass
class EtcdServer:
    """One etcd process, alone or as a member of a cluster. Its data stays in `folder` between `start`s."""

    program: Path
    folder: Path
    name: str = "etcd"
    tls: EtcdTls | None = None
    arguments: Sequence[str] = ()
    client_port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    initial_cluster: str = ""  # alone by default
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.client_port}"

    @property
    def member(self) -> str:
        """Its part of ``--initial-cluster``."""
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start with the existing data. With `wait`, return when it answers clients."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self.program, *self._options()], stdout=log, stderr=log, cwd=self.folder)
        if wait:
            self.wait_until_ready()

    def _options(self) -> list[str]:
        peer_url = f"http://127.0.0.1:{self.peer_port}"
        own = {
            "--name": self.name,
            "--data-dir": str(self.folder / "data"),
            "--listen-client-urls": self.url,
            "--advertise-client-urls": self.url,
            "--listen-peer-urls": peer_url,
            "--initial-advertise-peer-urls": peer_url,
            "--initial-cluster": self.initial_cluster or self.member,
            "--listen-metrics-urls": f"http://127.0.0.1:{self.health_port}",
            "--log-level": "warn",
        }
        return [
            *(part for pair in own.items() for part in pair),
            *(self.tls.arguments() if self.tls else ()),
            *self.arguments,
        ]

    def wait_until_ready(self) -> None:
        """Wait until it has a leader and answers. Raises `EtcdDidNotStart`."""
        deadline_s = time.monotonic() + READY_S_MAX
        while not self.is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline_s:
                raise EtcdDidNotStart((self.folder / "log").read_text()[-2_000:])
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether this member sees a leader and answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Stop it gracefully. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, but shortly afterwards nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wait_until_paused(self) -> None:
        """Wait until all of its threads are stopped."""
        assert self._process is not None
        deadline_s = time.monotonic() + STOPPED_S_MAX
        while not _stands(self._process.pid):
            assert time.monotonic() < deadline_s, f"{self.name} goes on after SIGSTOP"
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Delete all data; it must not run. Its cluster's id stays the same, because etcd derives it from addresses and
        token."""
        assert self._process is None, f"{self.name} still runs"
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)  # a paused process would not stop gracefully
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@dataclass
class EtcdCluster:
    """Several members of one cluster."""

    members: Sequence[EtcdServer]

    @staticmethod
    def of(program: Path, folder: Path, *, size: int = 3, arguments: Sequence[str] = ()) -> EtcdCluster:
        """Not started yet."""
        members = [
            EtcdServer(program, folder / f"etcd-{number}", name=f"etcd-{number}", arguments=arguments)
            for number in range(size)
        ]
        for member in members:
            member.initial_cluster = ",".join(each.member for each in members)
        return EtcdCluster(members)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def start(self) -> None:
        """Start all members; return when each answers."""
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            member.wait_until_ready()

    def stop(self) -> None:
        """Stop all members that run."""
        for member in self.members:
            member.kill()  # the data is not needed any more, and a graceful stop moves leadership, which takes seconds

    def leader(self) -> EtcdServer:
        """The present leader, by its own metrics. Raises `LookupError` while there is none."""
        for member in self.members:
            if _says_it_leads(member):
                return member
        raise LookupError("no member leads")

    def followers(self) -> list[EtcdServer]:
        """The other members."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]


def _stands(pid: int) -> bool:
    """Whether all threads of a process are stopped, if the system reports it (Linux)."""
    stats = [thread.read_text() for thread in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "Tt" for stat in stats)


def _says_it_leads(member: EtcdServer) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", member.health_port, timeout=2)
    try:
        connection.request("GET", "/metrics")
        return b"\netcd_server_is_leader 1\n" in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
