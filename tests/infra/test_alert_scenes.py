"""The alerts, tested with Prometheus' own tool: none fires for a healthy cluster, and each fires for its own
problem."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from tests.components.required import require_component
from tests.infra.test_alerts import FOLDER, RULES

PRODUCE = "/v1/topics/{topic}/records"
MINUTES = 40
AT_MINUTE = 35
"""Long after everything below began, at minute 0."""


def broker(number: int) -> str:
    return f'job="tidelog",instance="broker-{number}:8080"'


def always(value: float) -> str:
    """A gauge in promtool's notation: its value and how often it repeats."""
    return f"{value}x{MINUTES}"


def growing(by_minute: float) -> str:
    """A counter."""
    return f"0+{by_minute}x{MINUTES}"


def acks(bound: str, of_number: int = 1) -> str:
    return f'tidelog_ack_seconds_bucket{{{broker(of_number)},le="{bound}"}}'


def of_each_broker(metric: str, value: str) -> Mapping[str, str]:
    return {f"{metric}{{{broker(number)}}}": value for number in (1, 2, 3)}


def of_each_member(metric: str, value: str) -> Mapping[str, str]:
    return {f'{metric}{{job="etcd",instance="etcd-{number}:2379"}}': value for number in (1, 2, 3)}


WELL: Mapping[str, str] = {
    **of_each_broker("up", always(1)),
    **of_each_member("up", always(1)),
    **of_each_member("etcd_server_has_leader", always(1)),
    **of_each_broker("tidelog_cluster_shards", always(4)),
    **of_each_broker("tidelog_cluster_shards_without_leader", always(0)),
    **of_each_broker("tidelog_coordinator_trouble", always(0)),
    **of_each_broker("tidelog_shard_fencings_total", always(0)),
    **of_each_broker("tidelog_shard_handovers_total", always(0)),
    **of_each_broker("tidelog_buffered_bytes", always(1_000_000)),
    **of_each_broker("tidelog_group_write_failures_total", always(0)),
    **of_each_broker("tidelog_group_copy_age_seconds", always(9)),
    **of_each_broker("tidelog_shards_led", always(1)),
    f"tidelog_shards_led{{{broker(3)}}}": always(2),
    f'tidelog_wal_bytes{{{broker(1)},shard="0"}}': always(64_000_000),
    f'tidelog_shard_denied_seconds{{{broker(1)},shard="2"}}': always(0),
    f'tidelog_http_problems_total{{{broker(1)},status="404",code="not_found"}}': growing(6_000),
    f'tidelog_http_requests_total{{{broker(1)},route="{PRODUCE}",method="POST",status="200"}}': growing(90),
    f'tidelog_archive_debt_seconds{{{broker(1)},topic="web"}}': always(60),
    f'tidelog_cold_bytes{{{broker(1)},topic="web"}}': always(100e9),
    f'tidelog_garbage_bytes{{{broker(1)},topic="web"}}': always(30e9),
    acks("0.5"): growing(1_000),
    acks("5.0"): growing(1_000),
    acks("+Inf"): growing(1_000),
}

SCENES: Mapping[str, tuple[Mapping[str, str], set[str]]] = {
    "a cluster that is well": ({}, set()),
    "a broker cannot store offsets": (
        {f"tidelog_group_write_failures_total{{{broker(2)}}}": growing(30)},
        {"TidelogGroupCommitsFail"},
    ),
    "a broker cannot copy offsets to the bucket": (
        {f"tidelog_group_copy_age_seconds{{{broker(1)}}}": growing(60)},
        {"TidelogOffsetsNotCopied"},
    ),
    "a broker is down": ({f"up{{{broker(1)}}}": always(0)}, {"TidelogBrokerDown"}),
    "all brokers are down": (of_each_broker("up", always(0)), {"TidelogBrokerDown", "TidelogNoBroker"}),
    "one broker sees a shard without leader": (
        {f"tidelog_cluster_shards_without_leader{{{broker(2)}}}": always(1)},
        {"TidelogShardWithoutLeader"},
    ),
    "the bucket refuses a broker's commits": (
        {f'tidelog_shard_denied_seconds{{{broker(1)},shard="2"}}': always(30)},
        {"TidelogCommitsDenied"},
    ),
    "a broker does not reach etcd": (
        {f"tidelog_coordinator_trouble{{{broker(1)}}}": always(1)},
        {"TidelogCoordinatorTrouble"},
    ),
    "a leader is fenced again and again": (
        {f"tidelog_shard_fencings_total{{{broker(1)}}}": growing(1)},
        {"TidelogFencings"},
    ),
    "shards are handed about": (
        {f"tidelog_shard_handovers_total{{{broker(1)}}}": growing(2)},
        {"TidelogShardsMoveAbout"},
    ),
    "a rolling restart": ({f"tidelog_shard_handovers_total{{{broker(1)}}}": f"0x30 4x{MINUTES - 30}"}, set()),
    "one broker leads most": ({f"tidelog_shards_led{{{broker(1)}}}": always(4)}, {"TidelogShardsUneven"}),
    "one produce in ten is slow": ({acks("0.5"): growing(900)}, {"TidelogSlowAcks"}),
    "a buffer fills": ({f"tidelog_buffered_bytes{{{broker(1)}}}": always(250_000_000)}, {"TidelogBufferFills"}),
    "answers are 503": (
        {f'tidelog_http_problems_total{{{broker(1)},status="503",code="unavailable"}}': growing(120)},
        {"TidelogServerErrors"},
    ),
    "one answer in ten is a 500": (
        {f'tidelog_http_requests_total{{{broker(1)},route="{PRODUCE}",method="POST",status="500"}}': growing(10)},
        {"TidelogErrorRatio"},
    ),
    "a broker that is not ready says so to its balancer": (
        {f'tidelog_http_requests_total{{{broker(1)},route="/readyz",method="GET",status="503"}}': growing(60)},
        set(),
    ),
    "half of what may be unarchived is": (
        {
            f"tidelog_unarchived_bytes{{{broker(1)}}}": always(0.6e9),
            f"tidelog_unarchived_bytes_max{{{broker(1)}}}": always(1e9),
        },
        {"TidelogArchiveBehind"},
    ),
    "producers are slowed": ({f"tidelog_produce_brake{{{broker(1)}}}": always(0.3)}, {"TidelogProducersSlowed"}),
    "a topic's oldest records wait": (
        {f'tidelog_archive_debt_seconds{{{broker(2)},topic="web"}}': always(4_000)},
        {"TidelogArchiveStands"},
    ),
    "an object is damaged": (
        {f"tidelog_damaged_objects{{{broker(1)}}}": always(1)},
        {"TidelogDamagedObjects"},
    ),
    "nothing is deleted": (
        {f'tidelog_garbage_bytes{{{broker(1)},topic="web"}}': always(800e9)},
        {"TidelogGarbageStays"},
    ),
    "a member of etcd is down": ({'up{job="etcd",instance="etcd-1:2379"}': always(0)}, {"EtcdMemberDown"}),
    "etcd has no leader": (of_each_member("etcd_server_has_leader", always(0)), {"EtcdWithoutLeader"}),
}


@pytest.fixture(scope="module")
def promtool() -> Path:
    return require_component("promtool")


@pytest.mark.parametrize("name", SCENES)
def test_every_alert_fires_for_its_own_problem(name: str, promtool: Path, tmp_path: Path) -> None:
    changed, fired = SCENES[name]
    series = [{"series": series, "values": values} for series, values in {**WELL, **changed}.items()]
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(fired)]
    asked = 'group by (alertname) (ALERTS{alertstate="firing"})'
    scene = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": asked, "eval_time": f"{AT_MINUTE}m", "exp_samples": samples}],
    }
    file = tmp_path / "scene.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [scene]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_in_some_scene() -> None:
    assert set().union(*(fired for _, fired in SCENES.values())) == {rule["alert"] for rule in RULES}


def test_prometheus_takes_the_configuration_and_the_rules(promtool: Path) -> None:
    command = [promtool, "check", "config", FOLDER / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout
