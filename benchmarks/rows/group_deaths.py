"""Consumer groups on three brokers: how soon the others notice that a consumer or a coordinator died.

- A consumer dies: two processes share 100 partitions; one is killed. From the end of its session, which begins with
  the answer to its last call, to the answer that gives the other one all partitions.
- A coordinator dies (kill -9): from the moment when etcd deletes the leader's key at the end of the lease, to the first
  answers to a poll and to a commit of each group. The epochs of the members must stay the same, or the family fails.
  There are no records, so each poll waits `WAIT_MS` for some, which counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks import cluster
from benchmarks.bench import Bench
from benchmarks.cluster import Cluster, await_true, running_cluster
from benchmarks.loads.group_members import GroupCall
from benchmarks.measure import Goal, Row, Side, not_run
from benchmarks.processes import Child, Failed
from benchmarks.rows.restarts import READY_S_MAX, keys_gone
from tidelog.coordinator.groups.group_shards import shard_of_group

SHARDS = 4
PARTITIONS = 100
SESSION_MS = 6_000
WAIT_MS = 50
AROUND_S = 3.0
NOTICED_S_MAX = 60.0
NAMES = (
    (
        "group-consumer-dies",
        f"a consumer with half of {PARTITIONS} partitions is killed, {cluster.WHERE}: from its session's end until the "
        "other one has all",
        Goal("within 1 s of the session's end", 1_000, at_least=False),
        "two processes with one member each, which poll",
    ),
    (
        "group-coordinator-dies",
        f"a broker is killed, {cluster.WHERE}: from its lease's end to the first answers to polls and commits of its "
        "groups; nobody rebalances",
        Goal("within 1 s of the lease's end", 1_000, at_least=False),
        f"two members in each of {SHARDS} groups, one group in each shard; they poll and commit",
    ),
)


def rows(bench: Bench) -> list[Row]:
    if why := cluster.missing():
        return [not_run(name, what, goal, why) for name, what, goal, _ in NAMES]
    with running_cluster(bench, "groups", {"TIDELOG_SHARDS": str(SHARDS)}) as brokers:
        brokers.admin().create_topic("shared", PARTITIONS)
        found = [
            [run(bench, brokers, turn) for turn in range(bench.rounds)] for run in (_consumer_dies, _coordinator_dies)
        ]
    made = []
    for (name, what, goal, client), samples in zip(NAMES, found, strict=True):
        side = Side("Tidelog", client, "ms", [each for each, _ in samples], [fact for _, fact in samples])
        made.append(Row(name, what, goal, side.high, [side]))
    return made


def _consumer_dies(bench: Bench, brokers: Cluster, turn: int) -> tuple[float, str]:
    group = f"dies-{turn}"
    living, dying = (_members(bench, brokers, f"{name}-{turn}", [group], 1) for name in ("living", "dying"))
    _await_shares(brokers, group, [PARTITIONS // 2] * 2)
    time.sleep(AROUND_S)
    died_s = time.time()
    dying.kill()
    _await_shares(brokers, group, [PARTITIONS])
    time.sleep(AROUND_S / 3)
    bench.children.stop(living)
    whole = [call for call in GroupCall.all_from(living.log.read_text()) if call.partitions == PARTITIONS]
    noticed_s = min(call.answered_s for call in whole if call.answered_s > died_s) - died_s
    return max(0.0, noticed_s * 1e3 - SESSION_MS), f"{noticed_s:.2f} s after the kill; session {SESSION_MS / 1e3:g} s"


def _coordinator_dies(bench: Bench, brokers: Cluster, turn: int) -> tuple[float, str]:
    groups = _one_for_each_shard(turn)
    members = _members(bench, brokers, f"members-{turn}", groups, 2)
    for group in groups:
        _await_shares(brokers, group, [PARTITIONS // 2] * 2)
    time.sleep(AROUND_S)
    leaders = {shard.shard: str(shard.leader) for shard in brokers.admin().cluster().cluster.shards}
    victim = leaders[turn % SHARDS]
    brokers.brokers[victim].kill()
    killed_s, gone = time.time(), keys_gone(brokers, victim)
    time.sleep(AROUND_S)
    bench.children.stop(members)
    brokers.brokers[victim].start()
    brokers.brokers[victim].await_healthy(READY_S_MAX)
    brokers.await_settled()
    calls = GroupCall.all_from(members.log.read_text())
    took_ms = [_answered_again(calls, groups[int(shard)], gone_s) - gone_s for shard, gone_s in gone.items()]
    _check_nobody_rebalanced(calls, killed_s - AROUND_S / 2)
    fact = f"{len(gone)} groups; from the kill to the lease's end {min(gone.values()) - killed_s:.2f} s"
    return max(0.0, max(took_ms) * 1e3), fact


def _members(bench: Bench, brokers: Cluster, name: str, groups: Sequence[str], members: int) -> Child:
    arguments = (
        "--ports",
        *brokers.ports.values(),
        "--topic",
        "shared",
        "--session-ms",
        SESSION_MS,
        "--wait-ms",
        WAIT_MS,
    )
    return bench.children.start_module(
        name, "benchmarks.loads.group_members", *arguments, "--members", members, "--groups", *groups
    )


def _await_shares(brokers: Cluster, group: str, shares: Sequence[int]) -> None:
    """Wait until the members of `group` have so many partitions each."""

    def shared() -> bool:
        members = brokers.group(group)
        counts = [sum(len(part.partitions) for part in member.assignment) for member in members]
        return sorted(counts) == sorted(shares)

    await_true(shared, NOTICED_S_MAX, f"the members of {group} to have {shares} partitions")


def _one_for_each_shard(turn: int) -> Sequence[str]:
    """A group for each shard, by shard."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < SHARDS:
        name = f"coordinated-{turn}-{number}"
        names.setdefault(shard_of_group(name, SHARDS), name)
        number += 1
    return [names[shard] for shard in range(SHARDS)]


def _answered_again(calls: Sequence[GroupCall], group: str, since_s: float) -> float:
    """When both a poll and a commit of each member of `group` were answered after `since_s`."""
    own = [call for call in calls if call.group == group and call.answered_s > since_s]
    kinds = {(call.member, call.commits) for call in own}
    if len(kinds) < 4:
        raise Failed(f"polls or commits of {group} did not go on")
    return max(min(c.answered_s for c in own if (c.member, c.commits) == kind) for kind in kinds)


def _check_nobody_rebalanced(calls: Sequence[GroupCall], since_s: float) -> None:
    epochs: dict[tuple[str, int], set[int]] = {}
    for call in calls:
        if call.answered_s > since_s:
            epochs.setdefault((call.group, call.member), set()).add(call.epoch)
    if moved := {member: sorted(found) for member, found in epochs.items() if len(found) > 1}:
        raise Failed(f"members changed their epochs: {moved}")
