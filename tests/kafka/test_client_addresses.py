"""One client's address cannot take all connections, nor all connections all files of the process."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace

import pytest
from tests.kafka.scripted_listener import BOUNDS, answer, frame, is_ended, listening

from tidelog.services.doors.open_files import FILES_KEPT, connections_within, open_files_max, raise_open_files
from tidelog.services.kafka.listener.client_networks import ClientNetworks, network_of

FEW = replace(BOUNDS, connections_per_address_max=3)


async def test_one_address_is_bounded_and_another_one_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(FEW) as listener:
        greedy = [await listener.connect() for _ in range(FEW.connections_per_address_max)]
        reader, beyond = await listener.connect()
        assert await is_ended(reader)
        assert "max.connections.per.ip" in caplog.text
        assert listener.counts.refused == 1
        here = ("127.0.0.2", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=here)
        writer.write(frame(1))
        await listener.until(lambda: 1 in listener.placed)
        listener.placed[1].set_result((b"fine",))
        assert await answer(reader) == (1, b"fine")
        greedy[0][1].close()
        await listener.until(lambda: len(listener.connections) == FEW.connections_per_address_max)
        again_reader, again = await listener.connect()
        again.write(frame(2))
        await listener.until(lambda: 2 in listener.placed)
        for each in (beyond, writer, again, *(writer for _, writer in greedy)):
            each.close()
        assert not again_reader.at_eof()


def test_addresses_without_connections_are_forgotten() -> None:
    networks = ClientNetworks(2)
    assert [networks.take(host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2")] == [
        True,
        True,
        False,
        True,
    ]
    assert len(networks) == 2
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        networks.give_back(host)
    assert len(networks) == 0


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:0:7:1:2:3:4", "2001:db8:0:7::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("files", "left"),
    [(64, 32), (1_024, 512), (20_000, 20_000 - FILES_KEPT), (1 << 20, 30_000), (resource.RLIM_INFINITY, 30_000)],
)
def test_connections_leave_files_for_the_store(files: int, left: int) -> None:
    assert connections_within(files, 30_000) == left


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert raise_open_files() == open_files_max() > 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
