"""Every row of the table of `decisions`, and every combination of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterKeys, LeaderRecord
from tidelog.coordinator.kv.key_value import KeyValue
from tidelog.coordinator.leadership.cluster_snapshot import ClusterSnapshot, EpochKey, LeaderKey
from tidelog.coordinator.leadership.decisions import (
    Abandon,
    GiveBack,
    Move,
    OwnState,
    Reassert,
    Release,
    Take,
    candidates,
    decide,
)

KEYS = ClusterKeys("main")
LEASE, OLD_LEASE = 7, 6
ME = OwnState("a", "a2", LEASE, may_act=True)


def broker(broker_id: str, *, eligible: bool = True, stopping: bool = False) -> BrokerRecord:
    return BrokerRecord(broker_id, f"{broker_id}2", f"http://{broker_id}:1", "", "1", 0, eligible, stopping)


def led(broker_id: str, incarnation: str, epoch: int, lease_id: int = LEASE) -> LeaderKey:
    item = KeyValue(KEYS.leader(0), b"", 1, 1, 1, lease_id)
    return LeaderKey(LeaderRecord(broker_id, incarnation, epoch), item)


def epoch_key(epoch: int) -> EpochKey:
    return EpochKey(epoch, KeyValue(KEYS.epoch(0), b"%d" % epoch, 1, 1, 1))


def snapshot(
    held: LeaderKey | None, stored: int, *brokers: BrokerRecord, draining: frozenset[str] = frozenset()
) -> ClusterSnapshot:
    """One shard, number 0."""
    return ClusterSnapshot(
        revision=9,
        brokers={record.broker_id: record for record in brokers or (broker("a"),)},
        draining=draining,
        leaders={0: held} if held else {},
        epochs={0: epoch_key(stored)} if stored else {},
    )


MINE = led("a", "a2", 4)
MINE_OLD_LEASE = led("a", "a2", 4, OLD_LEASE)
MY_LAST = led("a", "a1", 4, OLD_LEASE)
OTHERS = led("b", "b2", 4)
OTHERS_UNLEASED = led("b", "b2", 4, 0)
OTHERS_LAST_UNLEASED = led("b", "b1", 4, 0)
LEADING = replace(ME, led={0: 4})

ALONE = (broker("a"),)
PREFERRED_ELSEWHERE = (broker("a"), broker("b"))

TABLE: list[tuple[str, ClusterSnapshot, OwnState, Move | None]] = [
    ("led here, as the key says", snapshot(MINE, 4), LEADING, None),
    ("led here, key under an old lease", snapshot(MINE_OLD_LEASE, 4), LEADING, Reassert(0, 4, MINE_OLD_LEASE)),
    ("led here, no key", snapshot(None, 4), LEADING, Reassert(0, 4)),
    ("led here, no key, a later epoch", snapshot(None, 5), LEADING, Abandon(0)),
    ("led here, another's key", snapshot(led("b", "b2", 5), 5), LEADING, Abandon(0)),
    (
        "led here, another's key, seen while cut off",
        snapshot(led("b", "b2", 5), 5),
        replace(LEADING, may_act=False),
        Abandon(0),
    ),
    ("led here, another's key in this very epoch", snapshot(OTHERS, 4), LEADING, Abandon(0)),
    ("led here, the store is older", snapshot(None, 3), LEADING, None),
    ("led here, the store is empty", snapshot(None, 0), LEADING, None),
    ("led here, no key, cut off", snapshot(None, 4), replace(LEADING, may_act=False), None),
    ("led here, stopping", snapshot(MINE, 4), replace(LEADING, stopping=True), Release(0, 4)),
    ("led here, drained", snapshot(MINE, 4, *PREFERRED_ELSEWHERE, draining=frozenset("a")), LEADING, Release(0, 4)),
    ("led here, drained, nobody else", snapshot(MINE, 4, draining=frozenset("a")), LEADING, None),
    ("led here, not eligible yet", snapshot(MINE, 4, broker("a", eligible=False), broker("b")), LEADING, None),
    ("led here, on the move", snapshot(None, 4), replace(LEADING, busy=frozenset({0})), None),
    ("not led, my key", snapshot(MINE, 4), ME, GiveBack(0, 4)),
    ("not led, my key, stopping", snapshot(MINE, 4), replace(ME, stopping=True), GiveBack(0, 4)),
    ("not led, my last process's key", snapshot(MY_LAST, 4), ME, Take(0, epoch_key(4), MY_LAST)),
    (
        "not led, my last process's key, not eligible yet",
        snapshot(MY_LAST, 4, broker("a", eligible=False), broker("b")),
        ME,
        Take(0, epoch_key(4), MY_LAST),
    ),
    ("not led, my last process's key, drained", snapshot(MY_LAST, 4, draining=frozenset("a")), ME, None),
    ("not led, another's key", snapshot(OTHERS, 4, *PREFERRED_ELSEWHERE), ME, None),
    ("not led, another's key, no lease", snapshot(OTHERS_UNLEASED, 4, *PREFERRED_ELSEWHERE), ME, None),
    ("not led, a key of nobody's, no lease", snapshot(OTHERS_UNLEASED, 4), ME, Take(0, epoch_key(4), OTHERS_UNLEASED)),
    (
        "not led, another's last process's key, no lease",
        snapshot(OTHERS_LAST_UNLEASED, 4, broker("a"), broker("b"), draining=frozenset("b")),
        ME,
        Take(0, epoch_key(4), OTHERS_LAST_UNLEASED),
    ),
    ("not led, a key of nobody's, no lease, cut off", snapshot(OTHERS_UNLEASED, 4), replace(ME, may_act=False), None),
    ("not led, a key of nobody's, under a lease", snapshot(OTHERS, 4), ME, None),
    ("not led, nobody's, never led", snapshot(None, 0), ME, Take(0, None)),
    ("not led, nobody's, led before", snapshot(None, 4), ME, Take(0, epoch_key(4))),
    ("not led, nobody's, came back just now", snapshot(None, 4), replace(ME, may_take=False), None),
    ("not led, nobody's, resting", snapshot(None, 4), replace(ME, resting=frozenset({0})), None),
    ("not led, nobody's, on the move", snapshot(None, 4), replace(ME, busy=frozenset({0})), None),
    ("not led, nobody's, stopping", snapshot(None, 4), replace(ME, stopping=True), None),
    ("not led, nobody's, cut off", snapshot(None, 4), replace(ME, may_act=False), None),
    ("not led, nobody's, for another", snapshot(None, 4, broker("a", eligible=False), broker("b")), ME, None),
]


@pytest.mark.parametrize(("seen", "me", "move"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table(seen: ClusterSnapshot, me: OwnState, move: Move | None) -> None:
    assert decide(seen, me, [0]) == (() if move is None else (move,))


def everything() -> Iterator[tuple[ClusterSnapshot, OwnState]]:
    """Every combination of the inputs for one shard."""
    holders = (None, MINE, MINE_OLD_LEASE, MY_LAST, OTHERS, OTHERS_UNLEASED, led("b", "b2", 5))
    flags = (False, True)
    for held, stored, mine, other in product(holders, (0, 3, 4, 5), flags, flags):
        brokers = (broker("a", eligible=mine), *((broker("b"),) if other else ()))
        for draining in (frozenset[str](), frozenset("a"), frozenset("ab")):
            seen = snapshot(held, stored, *brokers, draining=draining)
            for act, take, stop, leads, rests in product(flags, repeat=5):
                resting = frozenset({0}) if rests else frozenset()
                led_now = {0: 4} if leads else {}
                yield seen, OwnState("a", "a2", LEASE, act, take, stop, led_now, frozenset(), resting)


def test_every_combination_keeps_the_rules() -> None:
    for seen, me in everything():
        for move in decide(seen, me, [0]):
            held = seen.leaders.get(0)
            stored = seen.epochs[0].epoch if 0 in seen.epochs else 0
            match move:
                case Take():
                    assert me.may_act
                    assert not me.stopping
                    assert not me.led
                    assert 0 not in me.resting
                    assert move.epoch == stored + 1, "above every epoch given out"
                    of_nobody = held == OTHERS_UNLEASED and "b" not in seen.brokers
                    assert held is None or held == MY_LAST or of_nobody, "never from a broker that may live"
                    assert me.may_take or held == MY_LAST
                case Release():
                    assert me.may_act
                    assert me.led[0] == stored == move.epoch
                case Reassert():
                    assert me.may_act
                    assert me.led[0] == stored == move.epoch
                    assert held is None or held == MINE_OLD_LEASE
                case GiveBack():
                    assert me.may_act
                    assert not me.led
                    assert held in (MINE, MINE_OLD_LEASE)
                case Abandon():
                    assert me.led
                    assert stored > me.led[0] or held in (OTHERS, OTHERS_UNLEASED, MY_LAST, led("b", "b2", 5))


def test_a_busy_shard_is_never_moved() -> None:
    for seen, me in everything():
        assert decide(seen, replace(me, busy=frozenset({0})), [0]) == ()


def test_each_shard_that_one_of_two_brokers_wants_is_taken_by_exactly_one() -> None:
    brokers = {name: broker(name) for name in ("a", "b")}
    seen = ClusterSnapshot(revision=1, brokers=brokers)
    takes = {
        name: {move.shard for move in decide(seen, OwnState(name, f"{name}2", LEASE, may_act=True), range(64))}
        for name in brokers
    }
    assert takes["a"] | takes["b"] == set(range(64))
    assert not takes["a"] & takes["b"]
    assert len(takes["a"]) == 32


@pytest.mark.parametrize(
    ("brokers", "draining", "expected"),
    [
        ([broker("a"), broker("b")], "", ["a", "b"]),
        ([broker("a"), broker("b", eligible=False)], "", ["a"]),
        ([broker("a", eligible=False), broker("b", eligible=False)], "", ["a", "b"]),
        ([broker("a"), broker("b", stopping=True)], "", ["a"]),
        ([broker("a"), broker("b")], "b", ["a"]),
        ([broker("a", eligible=False), broker("b")], "b", ["a"]),
        ([broker("a"), broker("b")], "ab", ["a", "b"]),
        ([broker("a", stopping=True), broker("b", stopping=True)], "", []),
    ],
)
def test_candidates(brokers: list[BrokerRecord], draining: str, expected: list[str]) -> None:
    assert candidates(brokers, draining) == expected
