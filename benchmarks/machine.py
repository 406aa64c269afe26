"""Describes the machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil
from infra.kafka import VERSION as KAFKA_VERSION
from infra.s2_lite import VERSION as S2_VERSION

from benchmarks import kafka
from benchmarks.measure import Machine, Origin

PACKAGES = ("pyarrow", "pyspark", "uvicorn", "aioboto3")


def describe_machine(*, quick: bool) -> Machine:
    """Describe this machine and its software."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return Machine(
        cores=os.cpu_count() or 1,
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        java=kafka.java_version(),
        versions=f"{packages}, Kafka {KAFKA_VERSION}, s2 lite {S2_VERSION}",
        quick=quick,
    )


def describe_run(*, rounds: int, scratch: Path, note: str) -> Origin:
    """Describe a run that begins now and keeps its data under `scratch`. `note`: a remark for the reader, for example
    that the machine was shared."""
    return Origin(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        rounds=rounds,
        cpu=_cpu(),
        disk=_disk(scratch),
        load_before=os.getloadavg()[0],
        note=note,
    )


def _disk(folder: Path) -> str:
    """The file system under `folder`, as ``ext4 on vda``."""
    mounted = [one for one in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(one.mountpoint)]
    if not mounted:
        return "unknown"
    nearest = max(mounted, key=lambda one: len(one.mountpoint))
    return f"{nearest.fstype} on {Path(nearest.device).name or nearest.device}"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The checkout's commit, with ``+`` behind it if files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
