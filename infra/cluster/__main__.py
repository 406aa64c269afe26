"""``make cluster``: three brokers, a three-node etcd and MinIO on this machine, until Ctrl-C.

Without MinIO the bucket is a folder; without etcd there is one broker (`infra.cluster.means`)."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from infra.cluster.local_cluster import LocalCluster
from infra.cluster.means import Wish, choose_shape, gather, limits
from infra.cluster.process import Failed
from infra.cluster.topology import Program, Shape
from infra.component import say

BROKER_PORT = 8081
LOOK_S = 0.5
RESTART_S = 15.0


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    chosen = _parser().parse_args(arguments)
    if chosen.fresh:
        shutil.rmtree(chosen.folder, ignore_errors=True)
    stopping = _stopping()
    try:
        shape = _shape(Wish(chosen.brokers, chosen.etcd), chosen.folder)
        ports = {name: chosen.port + n for n, name in enumerate(shape.broker_names)}
        with LocalCluster(chosen.folder, shape, ports=ports) as cluster:
            say(f"starting {len(cluster.processes)} processes; logs in {cluster.folder / 'logs'} ...")
            cluster.start()
            _show(cluster)
            _watch(cluster, stopping, chosen.seconds)
            say("stopping ...")
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _shape(wish: Wish, folder: Path) -> Shape:
    """What this machine can run, with a line for what it cannot. Raises `Failed`."""
    etcd = wish.etcd_nodes != 0 and gather(Program.ETCD)
    shape = choose_shape(wish, minio=gather(Program.MINIO), etcd=etcd)
    for line in limits(shape, wish, str(folder.resolve() / "data" / "bucket")):
        say(line)
    return shape


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cluster ARGS=...", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--brokers", type=_positive, help="3, or 1 where there is no etcd")
    parser.add_argument("--etcd", type=int, choices=range(8), metavar="NODES", help="3; 0: one broker by itself")
    parser.add_argument("--port", type=int, default=BROKER_PORT, help="of broker-1; the others follow")
    parser.add_argument(
        "--folder", type=Path, default=Path("artifacts/cluster"), help="data, logs and ports are kept here"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what the folder holds")
    parser.add_argument("--seconds", type=float, help="stop by itself after so long")
    return parser


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def _stopping() -> threading.Event:
    """Set by SIGTERM and Ctrl-C."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return stopping


def _show(cluster: LocalCluster) -> None:
    """Where everything is, and what to try."""
    rows = [("service", "address", "pid", "health")]
    for process in cluster.processes:
        health = "ready" if process.healthy() else "not ready"
        rows.append((process.service.name, f"http://{process.service.address.reached}", str(process.pid), health))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    tidelog = _tidelog()
    first, last = cluster.shape.broker_names[0], cluster.shape.broker_names[-1]
    store = cluster[first].service.environment["TIDELOG_STORE"]
    say(f"\nstore {store}. Try, in another shell (docs/cluster.md tells more):")
    say(f"  {tidelog} cluster info --broker {cluster.url(first)}")
    say(f"  echo hello | {tidelog} topic produce web --broker {cluster.url(first)}")
    say(f"  {tidelog} topic consume web -o start -e --broker {cluster.url(last)}")
    say(f"  kill -9 {cluster[last].pid}    # {last}")
    if cluster.shape.etcd_nodes:
        say(f"  {tidelog} cluster drain {first} --broker {cluster.url(last)}")
    say("Ctrl-C stops all of it.")


def _tidelog() -> str:
    """How a shell in this folder finds the command."""
    beside = Path(sys.executable).with_name("tidelog")
    if not beside.exists():
        return "tidelog"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def _watch(cluster: LocalCluster, stopping: threading.Event, seconds: float | None) -> None:
    """Until told to stop. What ended is started again after a while, as a container's restart policy would."""
    ended_at: dict[str, float] = {}
    began = time.monotonic()
    while not stopping.wait(LOOK_S) and (seconds is None or time.monotonic() - began < seconds):
        for process in cluster.processes:
            name = process.service.name
            if not process.running and name not in ended_at:
                ended_at[name] = time.monotonic()
                say(f"{name} has ended; it is started again in {RESTART_S:g} s (its log: {process.log_path})")
            elif name in ended_at and time.monotonic() - ended_at[name] > RESTART_S:
                del ended_at[name]
                process.start()
                say(f"{name} runs again, pid {process.pid}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
