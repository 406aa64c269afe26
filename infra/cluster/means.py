"""Chooses the cluster that this machine can run, from the options and the available programs.

Without MinIO the bucket is a folder that the brokers share. Without etcd there is one broker, which leads every shard.
A number that the user asked for is used or refused, never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.cluster.process import Failed
from infra.cluster.programs import COMPONENTS, find_program
from infra.cluster.topology import Program, Shape
from infra.components import prepare
from infra.etcd import ETCD
from infra.minio import MINIO
from infra.outlook import State, outlook

BROKERS = 3
ETCD_NODES = 3


@dataclass(frozen=True)
class Wish:
    """The options; None means as many as are possible."""

    brokers: int | None = None
    etcd_nodes: int | None = None

    @property
    def needs_etcd(self) -> bool:
        return bool(self.etcd_nodes) or (self.brokers or 1) > 1


def gather(program: Program) -> bool:
    """Make `program` if it is missing and this machine can. Returns whether it is available."""
    for component in COMPONENTS[program]:
        if find_program(program) is None and outlook(component, may_make=True).state is State.TO_MAKE:
            prepare(component)
    return find_program(program) is not None


def choose_shape(wish: Wish, *, minio: bool, etcd: bool) -> Shape:
    """The cluster to start. `minio`, `etcd`: whether their programs are available. Raises `Failed`."""
    if not etcd and wish.needs_etcd:
        raise Failed(f"a cluster of several brokers needs etcd, which is missing: {ETCD.how}")
    etcd_nodes = (ETCD_NODES if wish.etcd_nodes is None else wish.etcd_nodes) if etcd else 0
    brokers = wish.brokers or (BROKERS if etcd_nodes else 1)
    if brokers > 1 and not etcd_nodes:
        raise Failed("several brokers need etcd: omit --etcd 0, or use --brokers 1")
    return Shape(brokers, etcd_nodes, minio=minio)


def limits(shape: Shape, wish: Wish, bucket_folder: str) -> Sequence[str]:
    """One line for each missing part, and how to get it."""
    lines = []
    if not shape.minio:
        lines.append(f"MinIO is missing: the folder {bucket_folder} is the bucket. To get MinIO: {MINIO.how}")
    if not shape.etcd_nodes and wish.etcd_nodes is None:
        lines.append(f"etcd is missing: one broker leads every shard. To get etcd: {ETCD.how}")
    return lines
