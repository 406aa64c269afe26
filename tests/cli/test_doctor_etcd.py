"""`tidelog doctor` and etcd: its members, the permission to write, and compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from infra.loopback_ports import free_port
from tests.cli.test_doctor import doctor
from tests.components.etcd_server import EtcdServer
from tests.components.required import require_component
from tests.coordinator.etcd_gateway import add_user, compact, enable_users
from tests.end_to_end.broker_process import BrokerProcess

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.services.cli.doctor.etcd_checks import check_writes
from tidelog.services.cli.doctor.etcd_member import (
    REVISIONS_KEPT_MAX,
    REVISIONS_SEEN,
    Space,
    check_member,
    judge_space,
    space_of,
)
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime, SystemClock


def test_etcd_and_the_bucket_are_compared(etcd: EtcdServer, tmp_path: Path) -> None:
    name, store = f"doctor-{tmp_path.parent.name}-{tmp_path.name}", f"file:{tmp_path / 'data'}"
    flags = ["--store", store, "--etcd-endpoints", etcd.url, "--etcd-timeout-ms", "20s", "--cluster-name", name]
    process = BrokerProcess(
        tmp_path, {"store": store, "etcd.endpoints": etcd.url, "cluster.name": name, "broker.id": "b1"}
    )
    process.start()
    try:
        code, checks = doctor(*flags, "--broker", process.url)
        assert (code, checks["cluster"]["status"], checks[f"etcd member {etcd.url}"]["status"]) == (0, "ok", "ok")
        assert "b1 0." in checks["etcd"]["found"]
        assert checks["brokers' versions"]["status"] == "ok"
        assert checks["etcd write"]["status"] == "ok"
        assert "in use" in checks[f"etcd space {etcd.url}"]["found"]
    finally:
        process.stop()
    code, checks = doctor("--store", store)
    assert (code, "belongs to the cluster" in checks["etcd"]["found"]) == (1, True)
    code, checks = doctor(*flags[:-1], "another-name")
    assert (code, checks["cluster"]["status"]) == (1, "failed")
    assert "recover" in checks["cluster"]["advice"]


def test_etcd_that_is_down_is_told(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    code, checks = doctor("--store", f"file:{tmp_path}", "--etcd-endpoints", away, "--etcd-timeout-ms", "300ms")
    assert (code, checks["etcd"]["status"], checks[f"etcd member {away}"]["status"]) == (1, "failed", "failed")
    assert checks["conditional create"]["status"] == "ok"


def test_the_clock_of_a_member_of_etcd_is_compared(etcd: EtcdServer) -> None:
    class Behind(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() - 60_000

    settings = Settings(etcd_timeout_ms=20_000)
    assert check_member(etcd.url, settings, SystemClock())[0].status == "ok"
    assert check_member(etcd.url, settings, Behind())[0].status == "warning"


def test_a_user_that_may_not_write_both_prefixes_of_etcd_is_told(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = EtcdServer(require_component("etcd"), tmp_path_factory.mktemp("etcd"))
    server.start()
    try:
        add_user(server, "half", "half-secret", ["/tidelog/main/"])
        add_user(server, "whole", "whole-secret", ["/tidelog/main/", "/tidelog-groups/main/"])
        enable_users(server, "root-secret")
        asked = ["--store", f"file:{tmp_path}", "--etcd-endpoints", server.url, "--cluster-name", "main"]
        asked += ["--etcd-timeout-ms", "20s"]
        for user, code, status in (("half", 1, "failed"), ("whole", 0, "ok")):
            password = {"TIDELOG_ETCD_PASSWORD": f"{user}-secret"}
            ended, checks = doctor(*asked, "--etcd-username", user, environment=password)
            assert (ended, checks["etcd write"]["status"]) == (code, status)
            assert ("/tidelog-groups/main/" in checks["etcd write"]["advice"]) is (status == "failed")
            assert checks["etcd"]["status"] == "ok"
    finally:
        server.stop()


async def test_a_write_check_leaves_no_key_behind(etcd: EtcdServer) -> None:
    kv = EtcdKeyValueStore(EtcdSettings((etcd.url,), timeout_s=20.0), Runtime())
    keys = ClusterKeys("doctor-writes")
    try:
        assert [check.status for check in await check_writes(kv, keys, Runtime())] == ["ok"]
        assert [list((await kv.range(prefix)).items) for prefix in (keys.root, keys.groups)] == [[], []]
    finally:
        await kv.aclose()


async def test_the_space_of_etcd_shows_that_it_was_compacted(etcd: EtcdServer) -> None:
    settings = Settings(etcd_timeout_ms=20_000)
    kv = EtcdKeyValueStore(EtcdSettings((etcd.url,), timeout_s=20.0), Runtime())
    try:
        revision = await kv.put("/doctor-compacts", b"")
    finally:
        await kv.aclose()
    await compact(etcd, revision)
    (_, space) = await asyncio.to_thread(check_member, etcd.url, settings, SystemClock())
    assert (space.status, "it compacts, and keeps" in space.found) == ("ok", True), space


@pytest.mark.parametrize(
    ("size_bytes", "revision", "compacted", "status", "found"),
    [
        (1e6, REVISIONS_SEEN - 1, -1, "ok", "too few changes"),
        (1e6, REVISIONS_SEEN, -1, "warning", "never compacted"),
        (1e6, 10 * REVISIONS_SEEN, 9 * REVISIONS_SEEN, "ok", "keeps 10,000 revisions"),
        (1e6, REVISIONS_KEPT_MAX + 6, 5, "warning", "too rarely"),
        (1.7e9, 10, -1, "warning", "refuses all writes"),
    ],
)
def test_an_etcd_that_is_not_compacted_is_told(
    size_bytes: float, revision: int, compacted: int, status: str, found: str
) -> None:
    check = judge_space("etcd space", Space(size_bytes, size_bytes / 2, 2e9, revision, compacted))
    assert (check.status, found in check.found) == (status, True), check
    assert ("--auto-compaction-mode" in check.advice) is (status == "warning")


def test_metrics_without_the_space_are_skipped() -> None:
    assert judge_space("etcd space", space_of("404 page not found")).status == "skipped"
