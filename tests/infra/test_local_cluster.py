"""The processes of `make cluster` are started, killed and started again, and none is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from infra.cluster.local_cluster import LocalCluster
from infra.cluster.process import Failed
from infra.cluster.topology import Shape, kafka_name
from infra.loopback_ports import free_port
from tests.components.required import require_component

ROOT = Path(__file__).parents[2]
ALONE = Shape(1, 0)
END_S_MAX = 60.0


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    require_component("minio")
    return tmp_path / "cluster"


def test_a_cluster_continues_where_it_was_stopped(alone: Path) -> None:
    with LocalCluster(alone, ALONE) as cluster:
        cluster.start()
        ports, secrets = dict(cluster.addresses), cluster.secrets
        cluster.tidelog("topic", "create", "kept", broker="broker-1")
        cluster["broker-1"].kill()
        assert not cluster["broker-1"].healthy()
        cluster["broker-1"].start()
        cluster["broker-1"].await_healthy(END_S_MAX)
    with LocalCluster(alone, ALONE) as again:
        assert (again.addresses, again.secrets) == (ports, secrets)
        again.start()
        assert "kept" in again.tidelog("topic", "list", broker="broker-1")
    assert (alone / "cluster.json").stat().st_mode & 0o077 == 0


def test_a_paused_process_does_not_answer_and_is_stopped_all_the_same(alone: Path) -> None:
    with LocalCluster(alone, ALONE) as cluster:
        cluster.start()
        cluster["broker-1"].pause()
        assert not cluster["broker-1"].healthy()
        assert cluster["broker-1"].stop() == 0


def test_a_service_that_cannot_start_says_why(alone: Path) -> None:
    with (
        LocalCluster(alone, ALONE, settings={"TIDELOG_SHARDS": "none"}) as cluster,
        pytest.raises(Failed, match="shards"),
    ):
        cluster.start()


def test_the_callers_environment_does_not_reach_the_services(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_SHARDS", "none")
    with LocalCluster(alone, ALONE) as cluster:
        cluster.start()


def test_the_command_shows_what_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("minio", "etcd"):
        require_component(name)
    done = cluster_command(tmp_path, "--seconds", "1")
    output = done.communicate(timeout=END_S_MAX)[0]
    assert done.returncode == 0, output
    rows = re.findall(r"^(minio|etcd-\d|broker-\d) +http://127\.0\.0\.1:\d+ +(\d+) +ready$", output, re.MULTILINE)
    assert len(rows) == 7, output
    assert not any(psutil.pid_exists(int(pid)) for _, pid in rows)


def test_sigterm_stops_everything(alone: Path) -> None:
    command = cluster_command(alone, "--brokers", "1", "--etcd", "0")
    assert command.stdout
    pids = []
    for line in command.stdout:
        pids += re.findall(r"^(?:minio|broker-1) +\S+ +(\d+) +ready$", line)
        if line.startswith("Ctrl-C"):
            break
    assert len(pids) == 2
    os.kill(command.pid, signal.SIGTERM)
    command.communicate(timeout=END_S_MAX)
    assert command.returncode == 0
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def cluster_command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`python -m infra.cluster` on its own ports."""
    return subprocess.Popen(
        [sys.executable, "-m", "infra.cluster", "--folder", folder, "--port", str(free_port()), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_without_minio_brokers_share_a_folder(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, Shape(1, 0, minio=False)) as cluster:
        cluster.start()
        cluster.tidelog("topic", "create", "kept", broker="broker-1")
        assert [process.service.name for process in cluster.processes] == ["broker-1"]
    assert any((tmp_path / "data" / "bucket" / "meta").iterdir())
    assert LocalCluster(tmp_path).shape == Shape(1, 0, minio=False)


def test_brokers_with_etcd_share_a_folder_where_there_is_no_minio(tmp_path: Path) -> None:
    require_component("etcd")
    with LocalCluster(tmp_path, Shape(2, 1, minio=False)) as cluster:
        cluster.start()
        cluster.tidelog("topic", "create", "web", "--partitions", "4", broker="broker-1")
        assert "web" in cluster.tidelog("topic", "list", broker="broker-2")
        addresses = {cluster.addresses[kafka_name(name)].reached for name in cluster.shape.broker_names}
        for address in addresses:
            told = AdminClient({"bootstrap.servers": address}).list_topics(timeout=END_S_MAX)
            assert {f"{each.host}:{each.port}" for each in told.brokers.values()} == addresses
