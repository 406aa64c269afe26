"""`make cluster` on a machine without MinIO or etcd runs what is available, and says clearly what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from infra.cluster.means import Wish, choose_shape
from infra.cluster.process import Failed
from infra.cluster.topology import Shape
from infra.loopback_ports import free_port

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("wish", "minio", "etcd", "shape"),
    [
        (Wish(), True, True, Shape(3, 3)),
        (Wish(), False, True, Shape(3, 3, minio=False)),
        (Wish(), True, False, Shape(1, 0)),
        (Wish(), False, False, Shape(1, 0, minio=False)),
        (Wish(brokers=5), True, True, Shape(5, 3)),
        (Wish(etcd_nodes=0), True, True, Shape(1, 0)),
        (Wish(brokers=1), True, False, Shape(1, 0)),
        (Wish(brokers=1), True, True, Shape(1, 3)),
    ],
)
def test_the_cluster_has_the_shape_that_the_machine_allows(wish: Wish, minio: bool, etcd: bool, shape: Shape) -> None:
    assert choose_shape(wish, minio=minio, etcd=etcd) == shape


@pytest.mark.parametrize("wish", [Wish(brokers=3), Wish(etcd_nodes=3)])
def test_a_requested_component_that_is_missing_is_refused_with_how_to_get_it(wish: Wish) -> None:
    with pytest.raises(Failed, match=r"needs etcd.*install Go"):
        choose_shape(wish, minio=True, etcd=False)


def test_several_brokers_without_etcd_are_refused() -> None:
    with pytest.raises(Failed, match="several brokers need etcd"):
        choose_shape(Wish(brokers=2, etcd_nodes=0), minio=True, etcd=True)


def test_on_a_machine_with_neither_one_broker_runs_on_a_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "infra.cluster",
            "--folder",
            str(tmp_path / "cluster"),
            "--seconds",
            "0",
            "--port",
            str(free_port()),
        ],
        cwd=ROOT,
        env={"PATH": "", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "etcd is missing: one broker leads every shard" in done.stdout
    assert f"the folder {tmp_path / 'cluster' / 'data' / 'bucket'}" in done.stdout
    assert "install Go" in done.stdout
    assert "Traceback" not in done.stderr
