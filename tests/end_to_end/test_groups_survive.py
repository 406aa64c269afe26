"""Groups of three `tidelog serve` with a real etcd, while brokers die, stop and stall, and etcd is away."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import httpx
import pytest
from tests.components.cut_proxy import CutProxy
from tests.components.etcd_server import EtcdServer
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.end_to_end.group_client import SECRET, GroupClient, LiveMember, longest_gap_s

from tidelog.client import Admin
from tidelog.storage.errors import NotLeader, TidelogError, Unavailable
from tidelog.wire import groups as calls

LEASE_S = 1.0
SHARDS = 3
LOAD_S = 4.0
"""More than a takeover needs on two busy cores; `benchmarks/` measures it."""


class Brokers:
    def __init__(self, processes: list[BrokerProcess], ways: list[CutProxy]) -> None:
        self.processes = processes
        self.ways = ways

    @property
    def urls(self) -> list[str]:
        return [process.url for process in self.processes]

    def at(self, url: str) -> BrokerProcess:
        return next(process for process in self.processes if process.url == url)

    def balanced(self) -> bool:
        with Admin(self.urls[0]) as admin:
            shards = admin.cluster().cluster.shards
        return len({shard.leader for shard in shards}) == SHARDS and all(shard.leader for shard in shards)


@pytest.fixture(scope="module")
def cluster(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("groups")
    with ExitStack() as stack:
        ways = [stack.enter_context(CutProxy(etcd.url)) for _ in range(3)]
        processes = [
            BrokerProcess(
                folder,
                {
                    "store": f"file:{folder / 'data'}",
                    "etcd.endpoints": way.url,
                    "etcd.timeout.ms": 500,
                    "cluster.name": "groups-survive",
                    "broker.id": f"broker-{number}",
                    "shards": SHARDS,
                    "lease.ttl.ms": int(LEASE_S * 1000),
                    "rebalance.delay.ms": 0,
                    "peer.secret": SECRET,
                    "offsets.commit.timeout.ms": 1_000,
                },
            )
            for number, way in enumerate(ways)
        ]
        for process in processes:
            stack.callback(process.stop)
            process.start()
        with Admin(processes[0].url) as admin:
            admin.create_topic("few", partitions=2)
            admin.create_topic("many", partitions=100)
        yield Brokers(processes, ways)


@pytest.fixture
async def whole(cluster: Brokers) -> AsyncIterator[Brokers]:
    """Each broker leads a shard."""
    await asyncio.to_thread(wait_until, cluster.balanced, 30.0)
    yield cluster
    for way in cluster.ways:
        way.mend()


async def pair(client: GroupClient, group: str) -> list[LiveMember]:
    """Two members that have a partition each."""
    members = [LiveMember(client, group, "few") for _ in range(2)]
    for member in members:
        await member.join()
    while [len(member.partitions) for member in members] != [1, 1]:
        for member in members:
            await member.beat()
        await asyncio.sleep(0.05)
    for member in members:
        await member.beat()
    return members


async def test_when_the_coordinator_is_killed_commits_go_on_and_nobody_rebalances(whole: Brokers) -> None:
    async with GroupClient(whole.urls) as client:
        members = await pair(client, "killed")
        for member in members:
            member.live()
        await asyncio.sleep(0.3)
        broker, killed_at = whole.at(await client.place("killed")), time.monotonic()
        broker.kill()
        await asyncio.sleep(LEASE_S + LOAD_S + 1)
        for member in members:
            await member.die()
        broker.start()
        assert all(len(set(member.epochs)) == 1 for member in members)
        gaps = [longest_gap_s(times, killed_at) for m in members for times in (m.answered_at, m.committed_at)]
        assert max(gaps) < LEASE_S + LOAD_S
        committed = await client.committed("killed")
        assert sorted(committed.values()) >= sorted(member.commits for member in members)


async def test_when_the_coordinator_stops_members_notice_one_retry(whole: Brokers) -> None:
    async with GroupClient(whole.urls) as client:
        members = await pair(client, "stopped")
        for member in members:
            member.live()
        await asyncio.sleep(0.3)
        broker, stopped_at = whole.at(await client.place("stopped")), time.monotonic()
        assert await asyncio.to_thread(broker.stop) == 0
        await asyncio.sleep(1.0)
        for member in members:
            await member.die()
        broker.start()
        assert all(len(set(member.epochs)) == 1 for member in members)
        gaps = [longest_gap_s(times, stopped_at) for m in members for times in (m.answered_at, m.committed_at)]
        assert max(gaps) < LOAD_S


async def test_while_etcd_is_away_nobody_is_expired_and_heartbeats_go_on(whole: Brokers) -> None:
    async with GroupClient(whole.urls) as client:
        member, silent = await pair(client, "no etcd")
        place = await client.place("no etcd")
        await member.commit()
        session_ms = 2_000
        for each in (member, silent):
            beat = calls.Heartbeat(
                member_id=each.answer.member_id, member_epoch=each.answer.member_epoch, session_timeout_ms=session_ms
            )
            each.answer = await client.call("no etcd", beat)
        for way in whole.ways:
            way.cut()
        until, refused = time.monotonic() + 3 * session_ms / 1000, []
        await asyncio.sleep(LEASE_S)
        while time.monotonic() < until:
            beat = calls.Heartbeat(member_id=member.answer.member_id, member_epoch=member.answer.member_epoch)
            assert (await client.once(place, "no etcd", beat)).member_epoch == member.answer.member_epoch
            try:
                await client.once(place, "no etcd", calls.FetchOffsets())
                await member_commit(client, place, member)
            except Unavailable as error:
                refused.append(error)
        assert refused
        for way in whole.ways:
            way.mend()
        await member.commit()
        before = silent.answer
        await silent.beat()
        assert (silent.answer.member_epoch, silent.answer.assignment) == (before.member_epoch, before.assignment)


async def member_commit(client: GroupClient, place: str, member: LiveMember) -> None:
    offsets = (calls.PartitionOffset(topic="few", partition=member.partitions[0], offset=77),)
    commit = calls.CommitOffsets(
        offsets=offsets, member_id=member.answer.member_id, member_epoch=member.answer.member_epoch
    )
    await client.once(place, "no etcd", commit)


async def test_a_coordinator_that_was_paused_stores_and_answers_nothing_old(whole: Brokers) -> None:
    async with GroupClient(whole.urls) as client:
        members = await pair(client, "paused")
        paused = await client.place("paused")
        async with GroupClient([url for url in whole.urls if url != paused]) as others:
            os.kill(whole.at(paused).pid, signal.SIGSTOP)
            try:
                for member in members:
                    member.client = others
                    for _ in range(5):
                        await member.commit()
            finally:
                os.kill(whole.at(paused).pid, signal.SIGCONT)
            for request in (calls.FetchOffsets(), calls.CommitOffsets(offsets=(offset(1),))):
                with pytest.raises((NotLeader, Unavailable)):
                    await client.once(paused, "paused", request)
            assert await others.committed("paused") == {0: 5, 1: 5}
            assert await others.place("paused") != paused


def offset(value: int) -> calls.PartitionOffset:
    return calls.PartitionOffset(topic="few", partition=0, offset=value)


async def test_when_a_consumer_dies_the_others_have_its_partitions_soon_after_its_session(whole: Brokers) -> None:
    session_s = 2.0
    async with GroupClient(whole.urls) as client:
        living, dying = (LiveMember(client, "dies", "many", session_ms=int(session_s * 1000)) for _ in range(2))
        for member in (living, dying):
            await member.join()
        while [len(member.partitions) for member in (living, dying)] != [50, 50]:
            for member in (living, dying):
                await member.beat()
            await asyncio.sleep(0.05)
        await dying.beat()
        died_at = time.monotonic()
        while len(living.partitions) < 100:
            await asyncio.sleep(living.answer.heartbeat_interval_ms / 1000)
            await living.beat()
        assert session_s <= time.monotonic() - died_at < session_s + LOAD_S


async def test_a_client_cannot_make_the_calls_of_peers(whole: Brokers) -> None:
    async with httpx.AsyncClient() as http:
        headers = {"Content-Type": "application/vnd.msgpack"}
        answer = await http.post(f"{whole.urls[0]}/peers/groups/61", content=b"\x80", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "peer_unproved")
    async with GroupClient(whole.urls) as client:
        with pytest.raises(TidelogError, match="no request to a group"):
            await client.once(whole.urls[0], "g", {"call": "surprise"})  # type: ignore[arg-type]
