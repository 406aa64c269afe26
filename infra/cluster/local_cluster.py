"""A cluster of ordinary processes on loopback.

    with LocalCluster(folder) as cluster:
        cluster.start()                      # returns once every broker is ready
        cluster["broker-2"].kill()
        cluster["broker-2"].start()

The folder keeps data, logs, ports and the bucket's secret, so a stopped cluster can be started again with its data.
"""

from __future__ import annotations

import json
import secrets as entropy
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.cluster.process import TIDELOG, Failed, ServiceProcess, environment_with
from infra.cluster.topology import BUCKET, Address, Program, Route, Secrets, Shape, address_names, services
from infra.loopback_ports import HOST, free_ports

READY_S_MAX = 60.0
STOPPED_AT_ONCE_MAX = 8


class LocalCluster:
    """`shape`: by default the one kept in the folder, else the default shape. `ports` sets some ports by name; the
    others are free ports, which are chosen once and kept in the folder."""

    def __init__(
        self,
        folder: Path,
        shape: Shape | None = None,
        *,
        ports: Mapping[str, int] | None = None,
        route: Route | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        kept = _kept(folder / "cluster.json", shape, ports or {})
        self.shape = kept.shape
        self.addresses = {name: Address(HOST, HOST, port) for name, port in kept.ports.items()}
        self.secrets = Secrets(kept.user, kept.password)
        self._processes = {
            service.name: ServiceProcess(service, folder / "logs")
            for service in services(
                self.shape,
                self.addresses,
                self.secrets,
                data_folder=str(folder.resolve() / "data"),
                route=route,
                settings=settings,
            )
        }

    def __getitem__(self, name: str) -> ServiceProcess:
        return self._processes[name]

    @property
    def processes(self) -> Sequence[ServiceProcess]:
        return tuple(self._processes.values())

    @property
    def brokers(self) -> Sequence[ServiceProcess]:
        return [self[name] for name in self.shape.broker_names]

    @property
    def etcd_nodes(self) -> Sequence[ServiceProcess]:
        return [self[name] for name in self.shape.etcd_names]

    @property
    def _around(self) -> Sequence[ServiceProcess]:
        """The services that the brokers need."""
        return [process for process in self.processes if process.service.program is not Program.BROKER]

    def url(self, name: str) -> str:
        return f"http://{self.addresses[name].reached}"

    def start(self) -> None:
        """Start all services and return when they are ready. Raises `Failed`."""
        if self.shape.minio:
            (self.folder / "data" / "minio" / BUCKET).mkdir(
                parents=True, exist_ok=True
            )  # MinIO takes a folder here as a bucket
        for group in (self._around, self.brokers):
            for process in group:
                process.start()
            for process in group:
                process.await_healthy(READY_S_MAX)

    def stop(self) -> None:
        """Stop all services, brokers first. Raises `Failed` that names those that had to be killed."""
        failures = [*_stopped(self.brokers), *_stopped(self._around)]
        if failures:
            raise Failed("\n".join(failures))

    def tidelog(self, *arguments: str, broker: str, as_broker: bool = False) -> str:
        """The output of a `tidelog` command. It gets the address of `broker`, or, with `as_broker`, the settings of
        that broker. Raises `Failed`."""
        settings = self[broker].service.environment if as_broker else {"TIDELOG_BROKER": self.url(broker)}
        done = subprocess.run(
            [*TIDELOG, *arguments], env=environment_with(settings), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failed(f"tidelog {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


@dataclass
class _Kept:
    """The contents of `cluster.json`."""

    shape: Shape = field(default_factory=Shape)
    ports: dict[str, int] = field(default_factory=dict)
    user: str = "tidelog"
    password: str = field(default_factory=lambda: entropy.token_hex(16))


def _kept(file: Path, shape: Shape | None, fixed: Mapping[str, int]) -> _Kept:
    """The choices of an earlier start, completed: an etcd node must restart under its own address."""
    kept = _read(file) if file.exists() else _Kept()
    kept.shape = shape or kept.shape
    kept.ports |= fixed
    missing = [name for name in address_names(kept.shape) if name not in kept.ports]
    kept.ports |= dict(zip(missing, free_ports(len(missing)), strict=True))
    file.touch(mode=0o600)
    file.write_text(json.dumps(asdict(kept), indent=2))
    return kept


def _read(file: Path) -> _Kept:
    kept = json.loads(file.read_text())
    return _Kept(**{**kept, "shape": Shape(**kept.get("shape", {}))})


def _stopped(processes: Sequence[ServiceProcess]) -> list[str]:
    """Stop them in parallel; returns the failures."""

    def stop(process: ServiceProcess) -> str:
        try:
            process.stop()
        except Failed as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(STOPPED_AT_ONCE_MAX) as pool:
        return [failure for failure in pool.map(stop, processes) if failure]
