"""`EtcdKeyValueStore` with TLS, users, and tokens that expire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.components.certificates import Authority
from tests.components.etcd_server import EtcdServer, EtcdTls
from tests.components.required import require_component
from tests.coordinator.etcd_gateway import enable_users
from tests.coordinator.key_value_watches import take

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.kv.key_value import absent
from tidelog.storage.errors import Denied, Invalid, Unavailable
from tidelog.storage.runtime import Runtime

PASSWORD = "a password of this test alone"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="module")
def tls_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server with a certificate that also requires one of its clients."""
    files = authority.issue("server")
    tls = EtcdTls(files.certificate, files.key, client_ca=authority.file)
    yield from _started(EtcdServer(require_component("etcd"), tmp_path_factory.mktemp("etcd-tls"), tls=tls))


@pytest.fixture(scope="module", params=["etcd", "etcd34"])
def guarded_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server that admits `root` with `PASSWORD`."""
    folder = tmp_path_factory.mktemp("etcd-guarded")
    server = EtcdServer(require_component(request.param), folder, arguments=["--bcrypt-cost", "4"])
    for started in _started(server):
        enable_users(started, PASSWORD)
        yield started


def _started(server: EtcdServer) -> Iterator[EtcdServer]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def store_with(settings: EtcdSettings) -> AsyncIterator[EtcdKeyValueStore]:
    async with aclosing(EtcdKeyValueStore(settings, Runtime())) as store:
        yield store


def as_root(server: EtcdServer) -> EtcdSettings:
    return EtcdSettings((server.url,), username="root", password=PASSWORD)


async def test_both_sides_prove_themselves(tls_server: EtcdServer, authority: Authority) -> None:
    client = authority.issue("client")
    settings = EtcdSettings(
        (tls_server.url,), ca_file=str(authority.file), cert_file=str(client.certificate), key_file=str(client.key)
    )
    async with store_with(settings) as store:
        start = await store.put("a", b"secret")
        async with aclosing(store.watch("a", start)) as watch:
            assert [event.item.value for event in await take(watch, 1)] == [b"secret"]
    async with store_with(replace(settings, cert_file=None, key_file=None, timeout_s=1.0)) as unproved:
        with pytest.raises(Unavailable):
            await unproved.get("a")


async def test_a_server_of_another_authority_is_not_believed(tls_server: EtcdServer, tmp_path: Path) -> None:
    other = Authority(tmp_path / "theirs")
    async with store_with(EtcdSettings((tls_server.url,), ca_file=str(other.file), timeout_s=1.0)) as store:
        with pytest.raises(Unavailable, match="andshake failed"):
            await store.put("a", b"")


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"etcd\.ca\.file"):
        EtcdKeyValueStore(EtcdSettings(("https://127.0.0.1:1",), ca_file=str(tmp_path / "none")), Runtime())


async def test_user_and_password_let_in(guarded_server: EtcdServer) -> None:
    async with store_with(as_root(guarded_server)) as store:
        start = await store.put("a", b"1")
        assert (await store.transact([absent("b")], [])).succeeded
        lease = await store.grant(60.0)
        assert await store.keep_alive(lease.lease_id) == lease.ttl_s
        async with aclosing(store.watch("a", start)) as watch:
            assert len(await take(watch, 1)) == 1


async def test_a_wrong_password_is_denied(guarded_server: EtcdServer) -> None:
    async with store_with(replace(as_root(guarded_server), password="guessed")) as store:
        with pytest.raises(Denied):
            await store.get("a")
        with pytest.raises(Denied):
            await take(store.watch("a", 1), 1)


async def test_without_a_user_one_is_denied(guarded_server: EtcdServer) -> None:
    async with store_with(EtcdSettings((guarded_server.url,))) as store:
        with pytest.raises(Denied):
            await store.put("a", b"")
        with pytest.raises(Denied):
            await take(store.watch("a", 1), 1)


async def test_a_token_that_the_server_forgot_is_renewed(guarded_server: EtcdServer) -> None:
    """A member keeps its tokens in memory, so a restart loses them, and each expires after a time."""
    async with store_with(as_root(guarded_server)) as store:
        start = await store.put("a", b"1")
        async with aclosing(store.watch("a", start)) as watch:
            await take(watch, 1)
            for value in (b"2", b"3"):
                guarded_server.kill()
                await asyncio.to_thread(guarded_server.start)
                await store.put("a", value)  # never sent, or refused: so it is repeated, and done once
                (event,) = await take(watch, 1)
                assert event.item.value == value
        (item,) = (await store.range("a")).items
        assert item.mod_revision == event.item.mod_revision


async def test_a_user_of_an_open_store_comes_in(etcd: EtcdServer) -> None:
    """Like with etcd's own client."""
    async with store_with(as_root(etcd)) as store:
        assert await store.get("absent") is None


def test_the_password_is_not_shown() -> None:
    assert PASSWORD not in repr(EtcdSettings(("http://etcd:2379",), username="root", password=PASSWORD))
