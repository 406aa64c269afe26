"""Brokers join, leave and restart: shards follow, and the load on them sees no error."""

import asyncio
from collections.abc import Callable

import pytest
from tests.anybody import ANYBODY
from tests.attempts import attempts, within
from tests.broker.brokers import SETTINGS, running_broker, until
from tests.broker.cluster_load import check_log, load_on
from tests.broker.cluster_members import QUICK, Members, SharedKeyValueStore, running_members
from tests.broker.drafts import numbered, values_of

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.cluster.identity import WrongCluster
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.peers.proof import PeerProofs
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


async def test_a_broker_is_ready_before_it_leads_anything_and_shards_are_shared_evenly() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store)) as members:
        assert len(members.brokers["a"].shards.led()) == 4
        late = await members.start("b", store)
        assert late.status().ready
        assert late.shards.led() == {}
        await members.balanced()
        assert [len(members.brokers[name].shards.led()) for name in ("a", "b")] == [2, 2]
        status = late.cluster(ANYBODY)
        assert [(place.broker_id, place.shards) for place in status.brokers] == [("a", 2), ("b", 2)]
        assert (status.coordinator, status.trouble) == ("etcd", "")


async def test_a_rolling_restart_of_three_brokers_under_load_costs_no_producer_a_retry(
    bucket: Callable[[], ObjectStore],
) -> None:
    for attempt in attempts():
        with attempt:
            within(QUICK.lease_ttl_ms / 1000, await longest_wait_s_in_a_rolling_restart(bucket), "a wait")


async def longest_wait_s_in_a_rolling_restart(bucket: Callable[[], ObjectStore]) -> float:
    """Of a producer; none has to send anything twice."""
    async with running_members(*((name, bucket()) for name in ("a", "b", "c"))) as members:
        await members.brokers["a"].create_topic(ANYBODY, "t", 4, {})
        load = load_on(members, "t", 4)
        load.start()
        await until(load.more(3))
        for name in ("a", "b", "c"):
            await members.stop(name)
            await until(load.more(3))
            await members.start(name, bucket())
            await members.balanced()
            await until(load.more(3))
        await load.stop()
        for number in range(4):
            await check_log(members.brokers["b"], load, "t", number)
        assert sum(producer.retries for producer in load.producers) == 0
        return max(producer.longest_wait_s for producer in load.producers)


async def test_a_drained_broker_leads_nothing_and_still_takes_requests() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store), ("b", store)) as members:
        a, b = members.brokers["a"], members.brokers["b"]
        await a.create_topic(ANYBODY, "t", 4, {})
        await b.drain(ANYBODY, "a")
        await until(lambda: not a.shards.led() and len(b.shards.led()) == 4)
        assert [place.draining for place in b.cluster(ANYBODY).brokers] == [True, False]
        for number in range(4):
            await a.produce(ANYBODY, "t", numbered(number, 1), ProduceOptions(partition=number))
            assert values_of(await a.fetch(ANYBODY, "t", number, 0, ALL)) == [b"%d" % number]
        await b.drain(ANYBODY, "a", undo=True)
        await members.balanced()
        assert len(a.shards.led()) == 2


async def test_a_second_process_of_a_broker_replaces_the_first_one_which_ends() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store)) as members:
        first = members.brokers["a"]
        await first.create_topic(ANYBODY, "t", 1, {})
        await first.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        second = await members.start("a", store)
        reason = await asyncio.wait_for(first.must_stop(), 60)
        assert "broker a" in reason
        await members.balanced()
        assert first.shards.led() == {}
        await second.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
        assert values_of(await second.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]
        await first.aclose()


async def test_a_broker_alone_does_not_start_on_the_bucket_of_a_cluster() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store)):
        pass
    with pytest.raises(WrongCluster, match="main"):
        async with running_broker(store):
            pass


async def test_a_second_cluster_does_not_start_on_the_bucket_of_the_first() -> None:
    store = MemoryObjectStore()
    async with running_members(("a", store)):
        pass  # the bucket is now bound to its cluster
    other = SharedKeyValueStore(Runtime())
    before = asyncio.all_tasks()
    with pytest.raises(WrongCluster):
        await Members(other).start("b", store)
    assert asyncio.all_tasks() <= before, "it leaves nothing running"
    await other.end()


async def test_a_broker_alone_keeps_its_bucket_from_a_cluster() -> None:
    store = MemoryObjectStore()
    async with running_broker(store) as alone:
        await alone.create_topic(ANYBODY, "t", 1, {})
    kv = SharedKeyValueStore(Runtime())
    with pytest.raises(WrongCluster, match="recover"):
        await Members(kv).start("a", store, QUICK)
    await kv.end()
    assert SETTINGS.etcd_endpoints is None


async def test_the_secret_that_a_later_broker_makes_is_taken_over_by_those_that_run() -> None:
    """An operator changes the secret: deletes its key and starts a broker."""
    store, clock = MemoryObjectStore(), Runtime().clock
    async with running_members(("a", store), ("b", store)) as members:
        secrets = {name: broker.peer_secrets for name, broker in members.brokers.items()}
        for newcomer in ("c", "d"):
            former = secrets["a"].signing()
            assert former is not None
            await members.kv.delete(ClusterKeys(QUICK.cluster_name).peer_secret)
            assert {one.signing() for one in secrets.values()} == {former}, "kept while the store has none"
            secrets[newcomer] = (await members.start(newcomer, store)).peer_secrets
            made = secrets[newcomer].signing()
            assert made != former
            await until(lambda made=made: {one.signing() for one in secrets.values()} == {made})  # type: ignore[misc]
            late = PeerSecrets(None, clock)
            late.follow(former.decode(), lambda: None)
            proof = PeerProofs(late, clock).sign("GET", "/", ANYBODY.principal)
            assert PeerProofs(secrets["a"], clock).fault(proof, "GET", "/", ANYBODY.principal) == "", (
                "the former one holds for a while"
            )
