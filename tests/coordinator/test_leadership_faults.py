"""Leaderships whose store fails, in virtual time: cut off, away for minutes, wiped, replaced, set back, foreign."""

from __future__ import annotations

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.leadership_cluster import KEYS, SETTINGS, LeadershipCluster, founded, identity, recover
from tests.coordinator.virtual_time import virtually

from tidelog.coordinator.cluster.cluster_keys import encode_value
from tidelog.storage.errors import Unavailable

TTL_S = SETTINGS.lease_ttl_s


@virtually
async def test_nobody_moves_while_the_store_is_away_and_all_continues_after() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        leaders, told = cluster.leaders(), len(cluster.logs.history)
        for member in cluster.members.values():
            member.network.cut()
        await cluster.until(
            lambda: not any(m.leadership.view.health().reachable for m in cluster.members.values()), 5.0
        )
        await cluster.runtime.clock.sleep(60.0)
        assert cluster.leaders() == leaders
        with pytest.raises(Unavailable):
            await cluster.members["a"].leadership.drain("b")
        for member in cluster.members.values():
            member.network.heal()
        await cluster.until(cluster.is_settled, 20.0)
        assert cluster.leaders() == leaders
        assert {told.what for told in cluster.logs.history[told:]} == set(), "reasserting asks nothing of the hosts"


@virtually
async def test_a_broker_cut_off_beyond_its_lease_is_replaced_and_comes_back() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        cut_off = cluster.members["a"]
        cut_off.network.cut()
        await cluster.until(lambda: cluster.loads() == {"a": 0, "b": 6, "c": 6}, TTL_S + 1.0)
        assert len(cut_off.host.led()) == 4, "it does not know yet, but cannot commit"
        assert cut_off.leadership.view.health().reachable is False
        cut_off.network.heal()
        await cluster.until(lambda: not cut_off.host.led(), 5.0)
        await cluster.until(lambda: cluster.loads() == {"a": 4, "b": 4, "c": 4}, TTL_S + 5.0)


@virtually
async def test_an_empty_store_is_not_believed_and_leaders_continue() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        leaders, told = cluster.leaders(), len(cluster.logs.history)
        await replace_store(cluster)
        await cluster.runtime.clock.sleep(60.0)
        assert cluster.leaders() == leaders
        assert len(cluster.logs.history) == told
        assert (await cluster.store.range("")).items == (), "nothing is written into the emptiness"
        view = cluster.members["a"].leadership.view
        assert "cluster recover" in view.health().reason
        assert {shard: leader.broker_id for shard, leader in view.leaders().items()} == leaders


@virtually
async def test_a_recovered_store_is_believed_and_everyone_reasserts() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        leaders, told = cluster.leaders(), len(cluster.logs.history)
        await replace_store(cluster)
        await recover(cluster)
        await cluster.until(cluster.is_settled, 10.0)
        await cluster.runtime.clock.sleep(30.0)
        assert cluster.is_settled()
        assert cluster.leaders() == leaders
        assert len(cluster.logs.history) == told


@virtually
async def test_a_dead_brokers_shards_are_taken_after_a_recovery() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        await replace_store(cluster)
        cluster.kill("b")
        await recover(cluster)
        await cluster.until(cluster.is_settled, TTL_S + 10.0)


@virtually
async def test_a_store_whose_keys_were_deleted_counts_as_wiped() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        leaders, told = cluster.leaders(), len(cluster.logs.history)
        for item in (await cluster.store.range(KEYS.root)).items:
            await cluster.store.delete(item.key)
        await cluster.until(lambda: not any(m.leadership.view.health().trusted for m in cluster.members.values()), 10.0)
        await cluster.runtime.clock.sleep(30.0)
        await recover(cluster)
        await cluster.until(cluster.is_settled, 20.0)
        assert (cluster.leaders(), len(cluster.logs.history)) == (leaders, told)


@virtually
async def test_a_store_whose_epochs_are_below_the_logs_is_not_trusted() -> None:
    async with founded(shards=1) as cluster:
        cluster.logs.epochs[0] = 5
        member = await cluster.start("a")
        await cluster.until(lambda: not member.leadership.view.health().trusted, 3.0)
        assert "cluster recover" in member.leadership.view.health().reason
        assert [told.epoch for told in cluster.logs.asked("lead")] == [1]
        assert await cluster.store.get(KEYS.leader(0)) is None, "the key was given back"
        await recover(cluster)
        await cluster.until(cluster.is_settled, 2.0)
        assert cluster.logs.epochs[0] == 6


@virtually
async def test_another_clusters_store_is_not_trusted() -> None:
    async with founded() as cluster:
        await cluster.store.put(KEYS.identity, encode_value(identity("another")))
        member = await cluster.start("a")
        await cluster.runtime.clock.sleep(20.0)
        assert not member.leadership.view.health().trusted
        assert "another" in member.leadership.view.health().reason
        assert cluster.logs.history == []


async def replace_store(cluster: LeadershipCluster) -> None:
    """Let another, empty store answer under the old address, and wait until all have noticed."""
    cluster.store = EmbeddedKeyValueStore(cluster.runtime)
    for member in cluster.members.values():
        member.network.replace(cluster.store)
    await cluster.until(lambda: not any(m.leadership.view.health().trusted for m in cluster.members.values()), 10.0)
