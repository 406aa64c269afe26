"""`tidelog doctor` on real components, on stores that do not keep their promises, and with the broker down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from infra.loopback_ports import free_port
from tests.cli.conftest import Tidelog
from tests.components.minio_admin import MinioAdmin, policy_of
from tests.components.s3_endpoint import S3Bucket
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog

from tidelog.services.cli.doctor import machine_checks
from tidelog.services.cli.doctor.broker_checks import check_cluster_versions
from tidelog.services.cli.doctor.check import Check
from tidelog.services.cli.doctor.machine_checks import check_disk
from tidelog.services.cli.doctor.store_checks import check_store
from tidelog.storage.errors import Conflict, Denied, Unavailable
from tidelog.storage.object_store import Body, list_all
from tidelog.storage.runtime import Runtime, SystemClock
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire.cluster import ClusterDescription, MemberDescription, MembershipDescription

WHOLE = ["store", "create", "clock and store", "conditional create", "conditional replace", "read", "list", "delete"]


def doctor(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks by name."""
    ended = run_tidelog(["doctor", "--json", *arguments], environment=environment)
    assert b"Traceback" not in ended.stderr, ended.stderr
    told = json.loads(ended.stdout)
    assert told["sound"] is (ended.returncode == 0)
    return ended.returncode, {check["name"]: check for check in told["checks"]}


def keys_of(bucket: S3Bucket) -> list[str]:
    listed = run_tidelog(["bucket", "ls", "--store", bucket.url, "--json"], environment=bucket.endpoint.environment())
    return [json.loads(line)["key"] for line in listed.stdout.splitlines()]


def test_a_bucket_of_minio_is_well_and_stays_empty(minio_bucket: S3Bucket) -> None:
    code, checks = doctor("--store", minio_bucket.url, environment=minio_bucket.endpoint.environment())
    assert code == 0
    assert [checks[name]["status"] for name in WHOLE] == ["ok"] * len(WHOLE)
    assert checks["broker"]["status"] == "skipped"
    assert keys_of(minio_bucket) == []


def test_each_missing_permission_is_named(minio_bucket: S3Bucket) -> None:
    admin = MinioAdmin(minio_bucket.endpoint)
    reader = admin.user(policy_of(minio_bucket, ["s3:ListBucket", "s3:GetObject"])).environment()
    code, checks = doctor("--store", minio_bucket.url, environment=reader)
    assert (code, checks["store"]["status"], checks["create"]["status"]) == (1, "ok", "failed")
    assert "docs/stores.md" in checks["create"]["advice"]
    keeper = admin.user(policy_of(minio_bucket, ["s3:ListBucket", "s3:GetObject", "s3:PutObject"])).environment()
    code, checks = doctor("--store", minio_bucket.url, environment=keeper)
    assert (code, checks["read"]["status"], checks["delete"]["status"]) == (1, "ok", "failed")
    assert len(keys_of(minio_bucket)) == 5  # nobody may delete them; the answer names their prefix
    assert "_staging/doctor/" in checks["delete"]["found"]


def test_a_store_that_cannot_be_reached_fails_at_once() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    environment = {"AWS_ENDPOINT_URL_S3": address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    code, checks = doctor("--store", "s3://no-such", environment=environment)
    assert (code, checks["store"]["status"]) == (1, "failed")
    assert "create" not in checks
    assert doctor("--store", "ftp:x")[0] == 1


def test_a_folder_that_is_missing_is_not_created(tmp_path: Path) -> None:
    code, checks = doctor("--store", f"file:{tmp_path / 'data'}")
    assert (code, checks["store"]["status"]) == (0, "warning")
    assert list(tmp_path.iterdir()) == []


def test_with_a_broker_its_readiness_and_store_are_told(
    tidelog: Tidelog, broker: BrokerProcess, store: Path, tmp_path: Path
) -> None:
    told = tidelog("doctor", "--store", f"file:{store}")
    assert (told.returncode, told.stdout.count(b"FAILED")) == (0, 0), told.stdout
    assert f"{broker.url} is ready".encode() in told.stdout
    other = json.loads(tidelog("doctor", "--store", f"file:{tmp_path}", "--json").stdout)["checks"]
    (warned,) = [check for check in other if check["status"] == "warning"]
    assert (warned["name"], "--store" in warned["advice"]) == ("broker's store", True)


class Overwriting(MemoryObjectStore):
    """Ignores the condition of a create, as some stores do."""

    async def create(self, key: str, data: Body) -> str:
        return await self.put(key, data)


class OftenOverwriting(MemoryObjectStore):
    """Checks the condition before it writes, so that racing creates all succeed."""

    async def create(self, key: str, data: Body) -> str:
        with_others = key in {info.key async for info in list_all(self, "")}
        await asyncio.sleep(0)
        return await (super().create(key, data) if with_others else self.put(key, data))


class Losing(MemoryObjectStore):
    """Refuses every racing create."""

    async def create(self, key: str, data: Body) -> str:
        if key.endswith("raced"):
            raise Conflict(f"create {key}: it exists")
        return await super().create(key, data)


class Breaking(MemoryObjectStore):
    """Answers no racing create."""

    async def create(self, key: str, data: Body) -> str:
        if key.endswith("raced"):
            raise Unavailable("the race was not answered")
        return await super().create(key, data)


class Undeletable(MemoryObjectStore):
    async def delete(self, key: str) -> None:
        raise Denied(f"delete {key}: access denied")


class Unlisting(MemoryObjectStore):
    async def list(self, prefix: str, **_: object) -> Sequence[Any]:
        return ()


class Stuck(MemoryObjectStore):
    async def create(self, key: str, data: Body) -> str:
        await super().create(key, data)
        raise Unavailable("no answer")


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        (Overwriting, "conditional create", "second create"),
        (OftenOverwriting, "conditional create", "racing creates succeeded"),
        (Losing, "conditional create", "0 of"),
        (Breaking, "conditional create", "the race was not answered"),
        (Undeletable, "delete", "still there"),
        (Unlisting, "list", "missing from the list"),
        (Stuck, "create", "no answer"),
    ],
)
async def test_a_store_that_breaks_a_promise_fails_that_check(
    kind: type[MemoryObjectStore], name: str, told: str
) -> None:
    store = kind(SystemClock())
    checks = await check_store(store, Runtime())
    assert [(check.name, check.status) for check in checks if check.status != "ok"] == [(name, "failed")]
    assert any(told in check.found and check.advice for check in checks)
    left = await MemoryObjectStore.list(store, "")
    assert bool(left) is (kind is Undeletable)


async def test_nothing_is_left_behind_by_an_interrupted_check() -> None:
    class Waiting(MemoryObjectStore):
        async def get(self, *_: object) -> Any:
            reached.set()
            await asyncio.Event().wait()

    store, reached = Waiting(SystemClock()), asyncio.Event()
    checking = asyncio.create_task(check_store(store, Runtime()))
    await reached.wait()
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert [info.key async for info in list_all(store, "")] == []


@pytest.mark.parametrize(
    ("ahead_ms", "status"), [(0, "ok"), (60_000, "warning"), (-60_000, "warning"), (10**6, "failed")]
)
async def test_a_clock_that_is_wrong_is_told(ahead_ms: int, status: str) -> None:
    class Skewed(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + ahead_ms

    checks = await check_store(MemoryObjectStore(SystemClock()), Runtime(clock=Skewed()))
    (clock,) = [check for check in checks if check.name == "clock and store"]
    assert clock.status == status
    assert ("NTP" in clock.advice) is (status != "ok")


def test_disks_that_are_full_missing_or_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only(checks: Sequence[Check]) -> str:
        (check,) = checks
        return check.status

    assert only(check_disk("disk", tmp_path, "--store")) == "ok"
    assert only(check_disk("disk", tmp_path / "none", "--store")) == "failed"
    usage = machine_checks.shutil.disk_usage(tmp_path)
    for free, status in ((1 << 20, "failed"), (1 << 30, "warning")):
        monkeypatch.setattr(
            machine_checks.shutil, "disk_usage", lambda _, free=free: usage._replace(total=10**12, free=free)
        )
        assert only(check_disk("disk", tmp_path, "--store")) == status


def test_brokers_of_different_versions_are_told() -> None:
    def cluster(*versions: str) -> ClusterDescription:
        members = tuple(
            MemberDescription(f"b{n}", "http://b", "none", version, 0, 0, False) for n, version in enumerate(versions)
        )
        membership = MembershipDescription("id", "main", "etcd", "", members, ())
        return ClusterDescription(versions[0], "file:x", True, "", 0, 0, 0, (), (), membership)

    assert [check.status for check in check_cluster_versions(cluster("0.1.0", "0.1.0"))] == ["ok"]
    differing = check_cluster_versions(cluster("0.1.0", "0.2.0"))
    assert [(check.status, check.found) for check in differing] == [("warning", "b0 0.1.0, b1 0.2.0")]
    assert [check.name for check in check_cluster_versions(cluster("9.0"))][-1] == "command's version"
