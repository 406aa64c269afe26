"""Finds the program of a service on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.cluster.topology import Program
from infra.etcd import ETCD, ETCD34
from infra.minio import MINIO

COMPONENTS = {Program.MINIO: (MINIO,), Program.ETCD: (ETCD, ETCD34)}
"""In order of preference; the machine's own program comes after the first one."""


def find_program(program: Program) -> Path | None:
    """The component's program, else the one on ``PATH``, else an older component's; None if there is none."""
    first, *others = COMPONENTS[program]
    own = shutil.which(program.value)
    found = (first.find(), Path(own) if own else None, *(other.find() for other in others))
    return next((place for place in found if place is not None), None)
