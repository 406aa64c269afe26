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
from infra.cluster.topology import Program, Shape, kafka_name
from infra.component import say

BROKER_PORT = 8081
LOOK_S = 0.5
RESTART_S = 15.0


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
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
    """The cluster that this machine can run; prints a line for each missing part. Raises `Failed`."""
    etcd = wish.etcd_nodes != 0 and gather(Program.ETCD)
    shape = choose_shape(wish, minio=gather(Program.MINIO), etcd=etcd)
    for line in limits(shape, wish, str(folder.resolve() / "data" / "bucket")):
        say(line)
    return shape


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cluster ARGS=...", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--brokers", type=_positive, help="3, or 1 without etcd")
    parser.add_argument("--etcd", type=int, choices=range(8), metavar="NODES", help="3; 0 for one broker without etcd")
    parser.add_argument("--port", type=int, default=BROKER_PORT, help="port of broker-1; the others use the next ones")
    parser.add_argument(
        "--folder", type=Path, default=Path("artifacts/cluster"), help="folder for data, logs and ports"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the data in the folder first")
    parser.add_argument("--seconds", type=float, help="stop after this time")
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
    """Print the addresses, and commands to try."""
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
    say(f"\nstore {store}. Try, in another shell (more in docs/cluster.md):")
    say(f"  {tidelog} cluster info --broker {cluster.url(first)}")
    say(f"  echo hello | {tidelog} topic produce web --broker {cluster.url(first)}")
    say(f"  {tidelog} topic consume web -o start -e --broker {cluster.url(last)}")
    say(f"  kcat -L -b {cluster.addresses[kafka_name(first)].reached}    # or any other client of Kafka")
    say(f"  kill -9 {cluster[last].pid}    # {last}")
    if cluster.shape.etcd_nodes:
        say(f"  {tidelog} cluster drain {first} --broker {cluster.url(last)}")
    say("Ctrl-C stops the cluster.")


def _tidelog() -> str:
    """The command as a shell in this folder can call it."""
    beside = Path(sys.executable).with_name("tidelog")
    if not beside.exists():
        return "tidelog"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def _watch(cluster: LocalCluster, stopping: threading.Event, seconds: float | None) -> None:
    """Wait until `stopping` is set. A process that has ended is restarted after `RESTART_S`, like a container."""
    ended_at: dict[str, float] = {}
    began = time.monotonic()
    while not stopping.wait(LOOK_S) and (seconds is None or time.monotonic() - began < seconds):
        for process in cluster.processes:
            name = process.service.name
            if not process.running and name not in ended_at:
                ended_at[name] = time.monotonic()
                say(f"{name} has ended; it restarts in {RESTART_S:g} s (its log: {process.log_path})")
            elif name in ended_at and time.monotonic() - ended_at[name] > RESTART_S:
                del ended_at[name]
                process.start()
                say(f"{name} runs again, pid {process.pid}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
