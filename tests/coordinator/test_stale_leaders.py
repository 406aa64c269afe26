"""Leader keys without a lease: none is ever written, and an existing one stops nobody."""

from __future__ import annotations

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.fake_hosts import FakeHost, Logs
from tests.coordinator.leadership_cluster import KEYS, founded
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, LeaderRecord, encode_value
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.coordinator.leadership.decisions import Reassert, Release, Take
from tidelog.coordinator.leadership.shard_moves import CLAIMS_MAX, ShardMoves
from tidelog.storage.runtime import Runtime, SeededEntropy

ME = BrokerRecord("a", "a2", "http://a:1", "", "1", 0, eligible=True, stopping=False)


class Unobserved:
    """Implements `MovesObserver`."""

    def wake(self) -> None: ...

    def log_is_ahead(self, shard: int, revision: int) -> None: ...

    def claims_fail(self) -> None: ...


async def leader_keys(kv: EmbeddedKeyValueStore) -> list[KeyValue]:
    return list((await kv.range(KEYS.leaders)).items)


@virtually
async def test_takes_that_waited_while_the_lease_was_lost_put_no_key() -> None:
    runtime = Runtime(LoopClock(), SeededEntropy(1))
    kv = EmbeddedKeyValueStore(runtime)
    host = FakeHost("a", Logs(), runtime, claim_s=2.0)
    moves = ShardMoves(kv, KEYS, host, ME, runtime, Unobserved())
    moves.lease_id = (await kv.grant(60.0)).lease_id
    moves.begin(Take(shard, None) for shard in range(CLAIMS_MAX + 8))
    await runtime.clock.sleep(1.0)  # the first are being claimed, the others wait
    moves.lease_id = 0
    while not moves.idle:
        await runtime.clock.sleep(0.1)
    found = await leader_keys(kv)
    assert len(found) == CLAIMS_MAX
    assert all(item.lease_id for item in found)
    assert len(host.led()) == CLAIMS_MAX


@virtually
async def test_a_leadership_is_not_asserted_without_a_lease() -> None:
    runtime = Runtime(LoopClock(), SeededEntropy(1))
    kv = EmbeddedKeyValueStore(runtime)
    await kv.put(KEYS.epoch(0), b"4")
    moves = ShardMoves(kv, KEYS, FakeHost("a", Logs(), runtime), ME, runtime, Unobserved())
    moves.begin([Reassert(0, 4)])
    while not moves.idle:
        await runtime.clock.sleep(0.1)
    assert await leader_keys(kv) == []


@pytest.mark.parametrize("taken", [False, True])
def test_only_a_key_that_was_still_its_own_is_called_released(taken: bool, caplog: pytest.LogCaptureFixture) -> None:
    @virtually
    async def run() -> None:
        runtime = Runtime(LoopClock(), SeededEntropy(1))
        kv = EmbeddedKeyValueStore(runtime)
        moves = ShardMoves(kv, KEYS, FakeHost("a", Logs(), runtime), ME, runtime, Unobserved())
        holder = LeaderRecord("b", "b2", 5) if taken else LeaderRecord("a", "a2", 4)
        await kv.put(KEYS.leader(0), encode_value(holder))
        moves.begin([Release(0, 4)])
        while not moves.idle:
            await runtime.clock.sleep(0.1)
        assert len(await leader_keys(kv)) == taken

    with caplog.at_level("INFO", "tidelog.coordinator.leadership.shard_moves"):
        run()
    assert ("shard 0 is released" in caplog.messages) is not taken
    assert any("not this broker's" in message for message in caplog.messages) is taken


@pytest.mark.parametrize("incarnation", ["gone", "b's last"])
def test_a_key_without_a_lease_of_a_broker_that_is_gone_is_replaced(incarnation: str) -> None:
    @virtually
    async def run() -> None:
        async with founded() as cluster:
            broker_id = "b" if incarnation == "b's last" else "gone"
            await cluster.store.put(KEYS.leader(3), encode_value(LeaderRecord(broker_id, incarnation, 4)))
            await cluster.store.put(KEYS.epoch(3), b"4")
            cluster.logs.epochs[3] = 4
            await cluster.start_all("a", "b", "c")
            assert cluster.logs.epochs[3] == 5
            item = await cluster.store.get(KEYS.leader(3))
            assert item is not None
            assert item.lease_id

    run()
