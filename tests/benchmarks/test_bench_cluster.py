"""The rows of a cluster run against real brokers, etcd and MinIO, and compute their figures correctly."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.cluster import etcd_requests_in
from benchmarks.loads.steady_clients import Call
from benchmarks.processes import Failed
from benchmarks.rows.restarts import first_answer
from tests.benchmarks.test_bench_quick import bench
from tests.components.required import require_component

METRICS = """# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 6.0
grpc_server_handled_total{grpc_code="Canceled",grpc_method="LeaseKeepAlive",grpc_type="bidi_stream"} 4.0
grpc_server_msg_received_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 6.0
grpc_server_msg_received_total{grpc_method="LeaseKeepAlive",grpc_type="bidi_stream"} 9.0
"""


def call(answered_s: float, leader: int, *, partition: int = 0, writes: bool = True, failed_s: float = 0.0) -> Call:
    failures = ("refused",) if failed_s else ()
    return Call(writes, partition, 0.0, answered_s, failed_s, failures, f"http://127.0.0.1:{leader}")


def test_requests_to_etcd_are_unary_calls_and_messages_but_not_the_ends_of_streams() -> None:
    assert etcd_requests_in(METRICS) == 6 + (9 - 4)


def test_the_first_answer_is_a_write_of_that_partition_by_another_leader() -> None:
    wanted = call(5.0, 2)
    others = [call(1.0, 2), call(3.0, 1), call(3.5, 2, writes=False), call(4.0, 2, partition=1), call(6.0, 2)]
    assert first_answer([*others, wanted], 0, after_s=2.0, unlike=1) == wanted
    with pytest.raises(Failed, match="partition 0"):
        first_answer(others, 0, after_s=7.0, unlike=1)


def test_a_call_is_cured_from_its_first_failure_on() -> None:
    assert call(5.0, 1, failed_s=4.25).cured_s == 0.75
    assert call(5.0, 1).cured_s == 0.0


def test_calls_survive_their_output() -> None:
    made = [call(5.0, 1, failed_s=4.0), call(6.0, 2)]
    found = Call.all_from("noise\n" + json.dumps([asdict(one) for one in made]) + "\n")
    assert [(one.answered_s, list(one.failures), one.leader) for one in found] == [
        (one.answered_s, list(one.failures), one.leader) for one in made
    ]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes are those of Linux: run it there")
@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("topic-creation", ["topic-creation", "topic-etcd-bytes"]),
        ("partition-memory", ["memory-partitions"]),
        pytest.param("etcd-load", ["etcd-requests", "etcd-requests-by-rate"], marks=pytest.mark.soak),
        pytest.param("cluster-puts", ["puts-cluster"], marks=pytest.mark.soak),
        pytest.param("three-brokers", ["three-brokers", "three-brokers-any"], marks=pytest.mark.soak),
        pytest.param("restarts", ["restart-retry", "restart-handover", "restart-takeover"], marks=pytest.mark.soak),
    ],
)
def test_a_quick_run_of_a_family(tmp_path: Path, family: str, names: list[str]) -> None:
    for name in ("etcd", "minio"):
        require_component(name)
    done = bench(tmp_path, "--quick", family, keep_cache=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert [row["name"] for row in rows] == names
    assert all(row["measured"] is not None and row["sides"] for row in rows), rows
