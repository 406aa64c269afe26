"""The effect on clients when brokers are restarted, drained and killed. Writers and readers run on every shard.

- Restart: all three brokers, one after another: SIGTERM, wait for the end, start, wait until ready. A client that gets
  any answer except 200 immediately asks the next broker. The figure is the longest time from the first failure to the
  answer.
- Handover: from the line in the old leader's log that says it released the shard, to the new leader's first answer to
  a writer.
- Takeover: after kill -9, from the moment when etcd deletes the leader's key at the end of the lease, to the same
  answer.

Every acknowledged record must be in its log once, or the family fails.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks import cluster
from benchmarks.bench import Bench
from benchmarks.cluster import KEYS, Cluster, await_true, running_cluster
from benchmarks.loads.steady_clients import Call
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.processes import Failed
from tidelog.coordinator.cluster.cluster_keys import LeaderRecord, decode_value

SHARDS = 4
AROUND_S = 2.0
READY_S_MAX = 60.0
TAKEN_S_MAX = 30.0
ASK_ETCD_S = 0.01
CLIENT = f"a writer and a reader for each of {SHARDS} partitions, one in each shard, a record at a time"
NAMES = (
    (
        "restart-retry",
        f"rolling restart of all brokers under load, {cluster.WHERE}: longest time from a client's first error to its "
        "answer",
        Goal("a retry succeeds within 1 s of the first error", 1_000, at_least=False),
    ),
    (
        "restart-handover",
        "a broker is drained and put back: from a shard's release to the new leader's first answer",
        Goal("within 500 ms", 500, at_least=False),
    ),
    (
        "restart-takeover",
        "a broker is killed: from the end of its lease to the new leaders' first answers",
        Goal("within 2 s", 2_000, at_least=False),
    ),
)


@dataclass(frozen=True)
class _Found:
    """One sample, and a fact to show beside it."""

    ms: float
    fact: str


def rows(bench: Bench) -> list[Row]:
    if why := cluster.missing():
        return [not_run(name, what, goal, why) for name, what, goal in NAMES]
    with running_cluster(bench, "restarts", {"TIDELOG_SHARDS": str(SHARDS)}) as brokers:
        runs = (_rolling, _handover, _takeover)
        found = [[run(bench, brokers, turn) for turn in range(bench.rounds)] for run in runs]
    made = []
    for (name, what, goal), samples in zip(NAMES, found, strict=True):
        side = Side("Tidelog", CLIENT, "ms", [each.ms for each in samples], [each.fact for each in samples])
        made.append(Row(name, what, goal, side.high, [side]))
    return made


def _rolling(bench: Bench, brokers: Cluster, turn: int) -> _Found:
    def restart_all() -> None:
        for broker in brokers.brokers.values():
            broker.stop()
            broker.start()
            broker.await_healthy(READY_S_MAX)
        brokers.await_settled()

    calls = _calls_during(bench, brokers, f"rolling-{turn}", restart_all)
    failed = [call for call in calls if call.failures]
    kinds = Counter(failure.partition("(")[0].partition(" b")[0] for call in failed for failure in call.failures)
    longest = max(call.answered_s - call.began_s for call in calls)
    fact = f"{len(failed)} of {len(calls)} calls failed at first ({_listed(kinds)}); the longest took {longest:.2f} s"
    return _Found(max(call.cured_s for call in calls) * 1e3, fact)


def _handover(bench: Bench, brokers: Cluster, turn: int) -> _Found:
    """Drain a broker and put it back. The sample is the longest move of a shard."""
    drained = list(brokers.brokers)[turn % len(brokers.brokers)]
    asked = brokers.admin(next(name for name in brokers.brokers if name != drained))
    topic, began = f"handover-{turn}", time.time()

    def drain_and_back() -> None:
        asked.drain(drained)
        await_true(lambda: asked.cluster().cluster.led_by(drained) == 0, TAKEN_S_MAX, f"{drained} to lead nothing")
        brokers.await_settled()
        time.sleep(AROUND_S)
        asked.drain(drained, undo=True)
        await_true(lambda: asked.cluster().cluster.led_by(drained) > 0, TAKEN_S_MAX, f"{drained} to lead again")
        brokers.await_settled()

    calls = _calls_during(bench, brokers, topic, drain_and_back)
    shards = [each.shard for each in asked.topic(topic).partitions]
    moves = []
    for name in brokers.brokers:
        for shard, released_s in _releases(brokers, name, began):
            answered = first_answer(calls, shards.index(shard), released_s, unlike=brokers.ports[name])
            moves.append((answered.answered_s - released_s) * 1e3)
    longest = max(call.answered_s - call.began_s for call in calls) * 1e3
    fact = f"{len(moves)} moves, median {statistics.median(moves):.0f} ms; the longest call took {longest:.0f} ms"
    return _Found(max(moves), fact)


def _takeover(bench: Bench, brokers: Cluster, turn: int) -> _Found:
    """Kill a broker. The sample is the time of its slowest shard."""
    leaders = Counter(shard.leader for shard in brokers.admin().cluster().cluster.shards)
    victim = str(leaders.most_common()[turn % len(leaders)][0])
    topic, ended_s = f"takeover-{turn}", {}

    def kill_and_start() -> None:
        brokers.brokers[victim].kill()
        ended_s["kill"] = time.time()
        ended_s.update(keys_gone(brokers, victim))
        brokers.brokers[victim].start()
        brokers.brokers[victim].await_healthy(READY_S_MAX)
        brokers.await_settled()

    calls = _calls_during(bench, brokers, topic, kill_and_start)
    killed_s = ended_s.pop("kill")
    shards = [f"{each.shard:04d}" for each in brokers.admin().topic(topic).partitions]
    answered_s = {
        shard: first_answer(calls, shards.index(shard), gone, unlike=brokers.ports[victim]).answered_s
        for shard, gone in ended_s.items()
    }
    fact = (
        f"{len(ended_s)} shards; from the kill to the lease's end {min(ended_s.values()) - killed_s:.2f} s, "
        f"to the last first answer {max(answered_s.values()) - killed_s:.2f} s"
    )
    return _Found(max(answered_s[shard] - gone for shard, gone in ended_s.items()) * 1e3, fact)


def _calls_during(bench: Bench, brokers: Cluster, topic: str, act: Callable[[], None]) -> Sequence[Call]:
    """Run `act` under load on a new topic; return the clients' calls before, during and after it."""
    brokers.admin().create_topic(topic, SHARDS)
    if len(brokers.shards_of(topic)) != SHARDS:
        raise Failed(f"{SHARDS} partitions do not cover {SHARDS} shards")
    arguments = ("--ports", *brokers.ports.values(), "--topic", topic, "--partitions", SHARDS)
    clients = bench.children.start_module(f"clients-{topic}", "benchmarks.loads.steady_clients", *arguments)
    time.sleep(AROUND_S)
    act()
    time.sleep(AROUND_S)
    bench.children.stop(clients)
    calls = Call.all_from(clients.log.read_text())
    written = Counter(call.partition for call in calls if call.writes)
    for each in brokers.admin().topic(topic).partitions:
        if each.records != written[each.partition] or not each.records:
            raise Failed(f"{topic}-{each.partition}: {written[each.partition]} acknowledged, {each.records} in the log")
    return calls


def first_answer(calls: Sequence[Call], partition: int, after_s: float, *, unlike: int) -> Call:
    """The first write in a partition that a leader other than the one at port `unlike` answered. Raises `Failed`."""
    answers = [
        call
        for call in calls
        if call.writes and call.partition == partition and call.answered_s >= after_s
        if not call.leader.endswith(f":{unlike}")
    ]
    if not answers:
        raise Failed(f"no write of partition {partition} was answered by a new leader")
    return min(answers, key=lambda call: call.answered_s)


def _releases(brokers: Cluster, broker: str, since_s: float) -> list[tuple[int, float]]:
    """Shard and time of each release in the log of `broker`."""
    found = []
    for line in brokers.brokers[broker].log_path.read_text().splitlines():
        if "is released" in line:
            entry = json.loads(line)
            at_s = datetime.fromisoformat(entry["time"]).timestamp()
            if at_s >= since_s:
                found.append((int(entry["message"].split()[1]), at_s))
    return found


def keys_gone(brokers: Cluster, victim: str) -> Mapping[str, float]:
    """Wait until etcd has deleted the leader keys of `victim`, and return when it did, by shard."""
    gone: dict[str, float] = {}

    def named(value: bytes) -> bool:
        return decode_value(KEYS.leaders, value, LeaderRecord).broker_id == victim

    wanted = {key for key, value in brokers.etcd_values(KEYS.leaders).items() if named(value)}

    def all_gone() -> bool:
        now, values = time.time(), brokers.etcd_values(KEYS.leaders)
        for key in wanted:
            if key not in values or not named(values[key]):
                gone.setdefault(key.removeprefix(KEYS.leaders), now)
        return len(gone) == len(wanted)

    await_true(all_gone, TAKEN_S_MAX, f"the lease of {victim} to end", ASK_ETCD_S)
    return gone


def _listed(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
