"""Leaderships of several brokers on one store, in virtual time: joins, deaths, restarts, drains, stops.

Every step checks that no two hosts lead a shard in one epoch and that calls for a shard never overlap
(`fake_hosts.Logs`).
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.coordinator.leadership_cluster import KEYS, SETTINGS, founded, handovers_s
from tests.coordinator.virtual_time import virtually

from tidelog.coordinator.leadership.registration import CERTAIN_SHARE, KEEP_ALIVES_PER_TTL
from tidelog.storage.errors import Denied, NotFound, Unavailable

TTL_S = SETTINGS.lease_ttl_s
DELAY_S = SETTINGS.rebalance_delay_s


@virtually
async def test_the_first_broker_leads_everything_at_once() -> None:
    async with founded() as cluster:
        await cluster.start("a")
        assert await cluster.until(cluster.is_settled, 1.0) < DELAY_S


@virtually
async def test_a_broker_that_joins_takes_its_share_with_one_move_a_shard() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        begun = len(cluster.logs.history)
        await cluster.start("c")
        await cluster.until(lambda: cluster.loads() == {"a": 4, "b": 4, "c": 4}, DELAY_S + 1.0)
        moved = cluster.logs.history[begun:]
        assert Counter(told.what for told in moved) == {"release": 4, "lead": 4}
        assert {told.shard for told in moved if told.what == "lead"} == {told.shard for told in moved}


@virtually
async def test_a_broker_that_flaps_gets_no_shards() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        before = len(cluster.logs.history)
        for _ in range(5):
            await cluster.start("c")
            await cluster.runtime.clock.sleep(DELAY_S * 0.9)
            cluster.kill("c")
            await cluster.runtime.clock.sleep(0.5)
        assert cluster.logs.history[before:] == []


@virtually
async def test_a_dead_brokers_shards_are_taken_when_its_lease_ends() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        cluster.kill("b")
        took_s = await cluster.until(lambda: len(cluster.leaders()) == cluster.shards, 20.0)
        assert TTL_S * 0.6 < took_s < TTL_S + 0.5
        await cluster.until(cluster.is_settled, 1.0)


@virtually
async def test_a_handover_is_over_soon_after_the_release() -> None:
    async with founded(shards=64) as cluster:
        await cluster.start_all("a", "b")
        begun = len(cluster.logs.history)
        await cluster.start("c")
        await cluster.until(lambda: min(cluster.loads().values()) == 21, DELAY_S + 2.0)
        for gap_s in handovers_s(cluster.logs.history[begun:]):
            assert gap_s < 0.1


@virtually
async def test_a_drained_broker_leads_nothing_until_that_is_undone() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        await cluster.members["a"].leadership.drain("b")
        await cluster.until(lambda: cluster.loads() == {"a": 6, "b": 0, "c": 6}, 1.0)
        assert cluster.members["c"].leadership.view.draining() == {"b"}
        await cluster.members["c"].leadership.drain("b", undo=True)
        await cluster.until(lambda: cluster.loads() == {"a": 4, "b": 4, "c": 4}, 1.0)


@virtually
async def test_a_drain_ends_with_the_next_start_of_the_broker() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        await cluster.members["a"].leadership.drain("b")
        await cluster.until(lambda: cluster.loads() == {"a": 12, "b": 0}, 1.0)
        await cluster.stop("b")
        await cluster.start("b")
        await cluster.until(lambda: cluster.loads() == {"a": 6, "b": 6}, DELAY_S + 1.0)


@virtually
async def test_when_all_are_drained_shards_are_led_all_the_same() -> None:
    async with founded() as cluster:
        await cluster.start_all("a")
        await cluster.members["a"].leadership.drain("a")
        await cluster.runtime.clock.sleep(5.0)
        assert len(cluster.leaders()) == cluster.shards


@virtually
async def test_draining_a_broker_that_is_not_there_names_those_that_are() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        with pytest.raises(NotFound, match="a, b"):
            await cluster.members["a"].leadership.drain("x")


@virtually
async def test_a_broker_that_stops_hands_over_and_leaves_nothing_behind() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        begun = len(cluster.logs.history)
        stopped = await cluster.stop("b")
        await cluster.until(cluster.is_settled, 1.0)
        assert stopped.host.led() == {}
        assert max(handovers_s(cluster.logs.history[begun:])) < 0.1
        left = (await cluster.store.range(KEYS.root)).items
        assert not any(b'"broker_id":"b"' in item.value for item in left)


@virtually
async def test_a_restarted_broker_comes_back_to_its_shards_at_once() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        shards = {shard for shard, name in cluster.leaders().items() if name == "b"}
        cluster.kill("b")
        await cluster.start("b")
        assert await cluster.until(cluster.is_settled, 1.0) < 0.5
        assert {shard for shard, name in cluster.leaders().items() if name == "b"} == shards
        await cluster.runtime.clock.sleep(20.0)
        assert len(cluster.logs.asked("release")) == 6, "but for the join of b, nothing was released"


@virtually
async def test_of_two_processes_with_one_id_the_earlier_steps_down_and_says_why() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        earlier = cluster.members["b"]
        await cluster.start("b")
        reason = await earlier.leadership.must_stop()
        assert "broker.id" in reason
        assert earlier.host.led() == {}
        await cluster.until(cluster.is_settled, 1.0)
        await cluster.runtime.clock.sleep(20.0)
        assert cluster.is_settled()
        assert cluster.members["b"].leadership.stop_reason == ""


@virtually
async def test_a_shard_that_was_fenced_is_led_again() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        host = cluster.members["a"].host
        shard = next(iter(host.led()))
        host.fence(shard)
        await cluster.until(cluster.is_settled, 3.0)
        assert cluster.members["a"].leadership.view.leaders()[shard].epoch > 1


@virtually
async def test_shards_that_one_broker_cannot_claim_go_to_another() -> None:
    await one_broker_cannot_claim(Unavailable)


@virtually
async def test_shards_that_the_bucket_lets_one_broker_not_claim_go_to_another() -> None:
    await one_broker_cannot_claim(Denied)


async def one_broker_cannot_claim(failure: type[Denied | Unavailable]) -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        host = cluster.members["a"].host
        host.failing, host.failure = set(range(cluster.shards)), failure
        cluster.kill("b")
        await cluster.until(lambda: len(cluster.leaders()) == cluster.shards, TTL_S + 5.0)
        assert cluster.loads() == {"a": 4, "c": 8}


@virtually
async def test_a_slow_claim_delays_no_other_shard() -> None:
    async with founded() as cluster:
        await cluster.start_all("a")
        member = await cluster.start("b")
        member.host.claim_s = 5.0
        await cluster.until(lambda: cluster.loads()["b"] == 6, DELAY_S + 6.0)
        led_at = [told.at_s for told in cluster.logs.asked("lead") if told.host == member.host.name]
        assert max(led_at) - min(led_at) < 0.1


@virtually
async def test_at_rest_the_store_hears_keep_alives_and_rare_checks_alone() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        await cluster.runtime.clock.sleep(10.0)
        calls = cluster.members["a"].network.calls
        calls.clear()
        await cluster.runtime.clock.sleep(600.0)
        assert set(calls) == {"keep_alive", "range", "incarnation"}
        assert sum(calls.values()) / 600.0 < 0.6


@virtually
async def test_callers_that_wait_for_a_change_are_woken() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        view, clock = cluster.members["a"].leadership.view, cluster.runtime.clock
        begin_s = clock.monotonic()
        await view.changed(5.0)
        assert clock.monotonic() - begin_s == pytest.approx(5.0)
        waiting = asyncio.create_task(view.changed(60.0))
        await cluster.stop("b")
        await waiting
        assert clock.monotonic() - begin_s < 10.0


@virtually
async def test_more_shards_are_led_as_soon_as_there_are_more() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        cluster.shards = 24
        await cluster.until(cluster.is_settled, 3.0)


@virtually
async def test_a_defect_ends_the_process_instead_of_leaving_it_half_alive() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        member = cluster.members["a"]
        member.host.defect = RuntimeError("must not happen")
        assert "must not happen" in await member.leadership.must_stop()
        member.host.defect = None


@virtually
async def test_shards_can_be_handed_over_while_the_view_stays_current() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b", "c")
        leaving = cluster.members["a"]
        await leaving.leadership.hand_over()
        assert leaving.host.led() == {}
        await cluster.until(lambda: set(cluster.leaders().values()) == {"b", "c"}, 1.0)
        await cluster.until(
            lambda: {record.broker_id for record in leaving.leadership.view.leaders().values()} == {"b", "c"}, 1.0
        )


@virtually
async def test_a_broker_that_stops_while_the_store_is_away_lets_go_in_bounded_time() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        cluster.members["a"].network.cut()
        clock = cluster.runtime.clock
        begin_s = clock.monotonic()
        stopped = await cluster.stop("a")
        assert clock.monotonic() - begin_s < SETTINGS.stop_timeout_s
        assert stopped.host.led() == {}
        await cluster.until(cluster.is_settled, TTL_S + 1.0)


@virtually
async def test_a_lease_proves_leadership_until_well_before_another_can_lead() -> None:
    async with founded() as cluster:
        await cluster.start_all("a", "b")
        a = cluster.members["a"]
        led = dict(a.host.led())

        def proves() -> set[bool]:
            return {a.leadership.view.surely_leads(shard, epoch) for shard, epoch in led.items()}

        assert proves() == {True}
        assert not any(a.leadership.view.surely_leads(shard, epoch + 1) for shard, epoch in led.items())
        assert not any(a.leadership.view.surely_leads(shard, 1) for shard in cluster.members["b"].host.led())
        a.network.cut()
        held_s = await cluster.until(lambda: proves() == {False}, TTL_S)
        assert TTL_S * (CERTAIN_SHARE - 1 / KEEP_ALIVES_PER_TTL) - 0.1 < held_s <= TTL_S * CERTAIN_SHARE
        await cluster.until(lambda: len(cluster.members["b"].host.led()) == cluster.shards, 20.0)
        assert proves() == {False}
        a.network.heal()
        await cluster.until(cluster.is_settled, 30.0)
        assert all(a.leadership.view.surely_leads(shard, epoch) for shard, epoch in a.host.led().items())
