"""Groups of three `tidelog serve` with a real etcd, while brokers die, stop and stall, and etcd is away."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx
import pytest
from tests.end_to_end.broker_cluster import LEASE_S, BrokerCluster
from tests.end_to_end.broker_process import wait_until
from tests.end_to_end.group_client import GroupClient, LiveMember, longest_gap_s

from tidelog.client import Admin
from tidelog.storage.errors import NotLeader, TidelogError, Unavailable
from tidelog.wire import groups as calls

LOAD_S = 4.0
"""More than a takeover needs on two busy cores; `benchmarks/` measures it."""


@pytest.fixture(scope="module", autouse=True)
def topics(cluster: BrokerCluster) -> None:
    with Admin(cluster.urls[0]) as admin:
        admin.create_topic("few", partitions=2)
        admin.create_topic("many", partitions=100)


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
        member.epochs.clear()  # of the handover, when the second one joined
    return members


async def live(members: list[LiveMember]) -> None:
    """Return when each member has been answered and has committed."""
    for member in members:
        member.live()
    await asyncio.to_thread(wait_until, lambda: all(m.answered_at and m.committed_at for m in members), LOAD_S)


async def lived_through(members: list[LiveMember], since: float) -> float:
    """Let `members` live on until each was answered and has committed again, then end them; return the longest time
    that one had to wait. None of them had to change its epoch."""
    now, waits = time.monotonic(), [times for m in members for times in (m.answered_at, m.committed_at)]
    await asyncio.to_thread(wait_until, lambda: all(times[-1] > now for times in waits), LEASE_S + 2 * LOAD_S)
    for member in members:
        await member.die()
    assert all(len(set(member.epochs)) == 1 for member in members)
    return max(longest_gap_s(times, since) for times in waits)


async def test_when_the_coordinator_is_killed_commits_go_on_and_nobody_rebalances(whole: BrokerCluster) -> None:
    async with GroupClient(whole.urls) as client:
        members = await pair(client, "killed")
        await live(members)
        broker, killed_at = whole.at(await client.place("killed")), time.monotonic()
        broker.kill()
        assert await lived_through(members, killed_at) < LEASE_S + LOAD_S
        broker.launch()
        committed = await client.committed("killed")
        assert sorted(committed.values()) >= sorted(member.commits for member in members)


async def test_when_the_coordinator_stops_members_notice_one_retry(whole: BrokerCluster) -> None:
    async with GroupClient(whole.urls) as client:
        members = await pair(client, "stopped")
        await live(members)
        broker, stopped_at = whole.at(await client.place("stopped")), time.monotonic()
        assert await asyncio.to_thread(broker.stop) == 0
        assert await lived_through(members, stopped_at) < LOAD_S
        broker.launch()


async def test_while_etcd_is_away_nobody_is_expired_and_heartbeats_go_on(whole: BrokerCluster) -> None:
    async with GroupClient(whole.urls) as client:
        member, silent = await pair(client, "no etcd")
        place = await client.place("no etcd")
        await member.commit()
        session_ms = 1_500
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
        whole.mend()
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


async def test_a_coordinator_that_was_paused_stores_and_answers_nothing_old(whole: BrokerCluster) -> None:
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


async def test_when_a_consumer_dies_the_others_have_its_partitions_soon_after_its_session(whole: BrokerCluster) -> None:
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


async def test_a_client_cannot_make_the_calls_of_peers(whole: BrokerCluster) -> None:
    async with httpx.AsyncClient() as http:
        headers = {"Content-Type": "application/vnd.msgpack"}
        answer = await http.post(f"{whole.urls[0]}/peers/groups/61", content=b"\x80", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "peer_unproved")
    async with GroupClient(whole.urls) as client:
        with pytest.raises(TidelogError, match="no request to a group"):
            await client.once(whole.urls[0], "g", {"call": "surprise"})  # type: ignore[arg-type]
