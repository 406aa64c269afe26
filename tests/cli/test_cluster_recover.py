"""`tidelog cluster recover` on a real etcd: it binds a broker's bucket to the etcd, and fills an etcd that was
wiped."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.storage.runtime import Runtime


@pytest.fixture
async def kv(etcd: EtcdServer) -> AsyncIterator[KeyValueStore]:
    store = EtcdKeyValueStore(EtcdSettings((etcd.url,), timeout_s=10.0), Runtime())
    yield store
    await store.aclose()


@pytest.fixture
def keys(tmp_path: Path) -> ClusterKeys:
    """The keys of a cluster only for this test."""
    return ClusterKeys(f"recover-{tmp_path.parent.name}-{tmp_path.name}")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bucket that a broker without etcd has used."""
    folder = tmp_path_factory.mktemp("used")
    _use(folder, f"file:{folder / 'data'}")
    return folder / "data"


@pytest.fixture
def bucket(used: Path, tmp_path: Path) -> str:
    """A copy of that bucket, only for this test."""
    shutil.copytree(used, tmp_path / "data")
    return f"file:{tmp_path / 'data'}"


def _use(folder: Path, store: str) -> None:
    """Start a broker, produce a record, stop it."""
    process = BrokerProcess(folder, {"store": store})
    process.start()
    try:
        ended = run_tidelog(["topic", "produce", "web"], broker=process.url, stdin=b"one\n")
        assert ended.returncode == 0, ended.stderr
    finally:
        process.stop()


def recover(etcd: EtcdServer, keys: ClusterKeys, store: str, *more: str) -> "CompletedProcess[bytes]":
    named = ["--store", store, "--etcd-endpoints", etcd.url, "--etcd-timeout-ms", "20s", "--cluster-name", keys.name]
    return run_tidelog(["cluster", "recover", *named, *more])


def recovered(etcd: EtcdServer, keys: ClusterKeys, store: str, *more: str) -> "CompletedProcess[bytes]":
    """Run `recover`, which must succeed."""
    ended = recover(etcd, keys, store, *more)
    assert ended.returncode == 0, ended.stderr
    return ended


async def contents(kv: KeyValueStore, keys: ClusterKeys) -> dict[str, bytes]:
    return {item.key.removeprefix(keys.root): item.value for item in (await kv.range(keys.root)).items}


async def test_a_bucket_is_bound_and_a_wiped_etcd_is_filled_again(
    etcd: EtcdServer, kv: KeyValueStore, keys: ClusterKeys, bucket: str
) -> None:
    refused = recover(etcd, keys, bucket)
    assert refused.returncode == 1, refused.stderr
    assert b"--yes" in refused.stderr
    assert await contents(kv, keys) == {}

    bound = recovered(etcd, keys, bucket, "--yes", "--json")
    plan = json.loads(bound.stdout)
    assert (plan["binds"], plan["identity"]["name"], plan["identity"]["shards"]) == (True, keys.name, 4)
    written = await contents(kv, keys)
    assert {name: value for name, value in written.items() if name.startswith("epochs/")} == {
        f"epochs/{shard:04d}": b"1" for shard in range(4)
    }
    assert int(written["journal"]) > 0
    assert json.loads(written["identity"]) == plan["identity"]

    for name in written:
        await kv.delete(keys.root + name)
    recovered(etcd, keys, bucket, "--dry-run")
    assert await contents(kv, keys) == {}
    filled = recovered(etcd, keys, bucket)
    before, written = written, await contents(kv, keys)
    assert written.keys() == before.keys()
    assert {name for name in written if written[name] != before[name]} == {"peer-secret"}
    assert json.loads(written["peer-secret"])["secret"].encode() not in filled.stdout + filled.stderr

    again = recovered(etcd, keys, bucket)
    assert b"etcd already has all of it" in again.stderr
    assert await contents(kv, keys) == written


async def test_a_broker_without_etcd_does_not_start_on_a_bucket_that_was_bound(
    etcd: EtcdServer, keys: ClusterKeys, bucket: str
) -> None:
    recovered(etcd, keys, bucket, "--yes")
    ended = run_tidelog(["serve", "--store", bucket, "--port", "0"])
    assert ended.returncode == 1, ended.stderr
    assert f"cluster.name={keys.name}".encode() in ended.stderr


def test_a_cluster_continues_where_a_broker_without_etcd_stopped(
    etcd: EtcdServer, keys: ClusterKeys, bucket: str, tmp_path: Path
) -> None:
    recovered(etcd, keys, bucket, "--yes")
    settings = {"store": bucket, "etcd.endpoints": etcd.url, "cluster.name": keys.name, "rebalance.delay.ms": 0}
    process = BrokerProcess(tmp_path, settings)
    process.start()
    try:
        assert run_tidelog(["topic", "produce", "web"], broker=process.url, stdin=b"two\n").returncode == 0
        assert run_tidelog(["topic", "consume", "web", "-e"], broker=process.url).stdout == b"one\ntwo\n"
    finally:
        assert process.stop() == 0


async def test_another_clusters_keys_are_left_alone_and_both_are_named(
    etcd: EtcdServer, kv: KeyValueStore, keys: ClusterKeys, bucket: str, tmp_path: Path
) -> None:
    recovered(etcd, keys, bucket, "--yes")
    written = await contents(kv, keys)
    other = tmp_path / "other"
    other.mkdir()
    _use(other, f"file:{other / 'data'}")
    ended = recover(etcd, keys, f"file:{other / 'data'}", "--yes")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(written["identity"])["cluster_id"].encode() in ended.stderr
    assert ended.stderr.count(b"\n") == 1
    assert await contents(kv, keys) == written


def test_without_an_etcd_or_a_bucket_it_says_what_to_name(etcd: EtcdServer, keys: ClusterKeys, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nowhere = run_tidelog(["cluster", "recover", "--store", f"file:{tmp_path / 'empty'}"])
    assert (nowhere.returncode, b"etcd.endpoints" in nowhere.stderr) == (2, True)
    empty = recover(etcd, keys, f"file:{tmp_path / 'empty'}")
    assert (empty.returncode, b"nothing to recover" in empty.stderr) == (4, True)
    missing = recover(etcd, keys, f"file:{tmp_path / 'missing'}")
    assert (missing.returncode, b"no folder" in missing.stderr) == (4, True)
