"""Real processes, faults from a seed, and the judge. The long run is `make chaos MINUTES=60`.

A failure names the seed and the folder with the history and all logs. `TIDELOG_TEST_CHAOS_SEED` chooses the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from infra.cluster.topology import Shape
from tests.chaos.chaos_run import ChaosRun, Outcome
from tests.chaos.checker.history import FinalLog, History, Run
from tests.chaos.checker.history import Outcome as Known
from tests.chaos.checker.judge import judge
from tests.chaos.checker.violation import Rule
from tests.chaos.oracle.oracle import VIOLATED, ask_oracle
from tests.chaos.report import report_on, write_report
from tests.chaos.sabotage import SABOTAGES
from tests.chaos.schedule import Pace
from tests.components.required import require_component

ALONE, CLUSTER = Shape(1, 0), Shape()
KINDS_ALONE = ("broker killed", "store's answers lost", "store killed", "clients' answers lost")
KINDS_OF_CLUSTER = (
    "broker killed",
    "broker paused",
    "broker restarted",
    "store unreachable",
    "clock stepped",
    "broker cut off from etcd",
    "etcd node killed",
    "etcd wiped",
    "peers cut off",
    "broker drained",
)
IN_THE_SUITE = ("the bucket forgets", "accepts commits of old epochs and leaves out records for Kafka")
SEED = int(os.environ.get("TIDELOG_TEST_CHAOS_SEED", random.randrange(1_000_000)))

pytestmark = pytest.mark.timeout(600)


def test_one_broker_keeps_every_promise_through_faults(tmp_path: Path) -> None:
    for name in ("minio", "log-oracle"):
        require_component(name)
    outcome = ChaosRun(tmp_path, seed=SEED, shape=ALONE).of_kinds(KINDS_ALONE, Pace((2.0, 5.0), lasting=0.25))
    assert outcome.holds, outcome.summary()
    assert_much_was_done(outcome)
    assert_the_judges_bite(outcome.history)
    assert_the_judge_of_groups_bites(outcome.history)
    assert write_report(report_on(outcome), tmp_path).read_text().startswith(f"# Chaos, seed {SEED}: holds")


def test_a_cluster_keeps_every_promise_through_faults(tmp_path: Path) -> None:
    for name in ("minio", "etcd", "log-oracle"):
        require_component(name)
    outcome = ChaosRun(tmp_path, seed=SEED, shape=CLUSTER).of_kinds(KINDS_OF_CLUSTER, Pace((0.5, 1.5), lasting=0.25))
    assert outcome.holds, outcome.summary()
    assert_much_was_done(outcome)
    assert write_report(report_on(outcome), tmp_path).read_text().startswith(f"# Chaos, seed {SEED}: holds")


@pytest.mark.parametrize("name", IN_THE_SUITE)
def test_a_sabotage_is_found_out(tmp_path: Path, name: str) -> None:
    require_component("minio")
    assert_found_out(name, tmp_path, ALONE)


@pytest.mark.soak
@pytest.mark.parametrize("name", SABOTAGES)
def test_every_sabotage_of_a_cluster_is_found_out(tmp_path: Path, name: str) -> None:
    for component in ("minio", "etcd"):
        require_component(component)
    assert_found_out(name, tmp_path, CLUSTER)


def assert_found_out(name: str, folder: Path, shape: Shape) -> None:
    """The judge names the rule that the sabotage breaks."""
    outcome = SABOTAGES[name].run(folder, seed=SEED, shape=shape)
    assert SABOTAGES[name].found(outcome), outcome.summary()


def assert_much_was_done(outcome: Outcome) -> None:
    """A run that did nothing would pass, too."""
    verdict = outcome.verdict
    assert verdict.appends[Known.OK] > 300, outcome.summary()
    assert verdict.appends[Known.CONFLICT] > 20, outcome.summary()
    assert verdict.appends[Known.UNKNOWN] > 0, outcome.summary()
    assert verdict.values_read > verdict.values_in_log > 3_000, outcome.summary()


def assert_the_judges_bite(history: History) -> None:
    """The judges find damage at the end of a real history: an acknowledged record left out, doubled, or moved behind
    the next."""
    assert judge(history).holds
    told = {(append.topic, placed.partition) for append in history.appends for placed in append.placed}
    at = next(n for n, final in enumerate(history.finals) if (final.topic, final.partition) in told)
    for damage, rule in ((_drop, Rule.LOST), (_double, Rule.DUPLICATED), (_swap, Rule.REORDERED)):
        damaged = replace(history, finals=list(history.finals))
        damaged.finals[at] = _relaid(history, history.finals[at], damage)
        assert rule in judge(damaged).broken, rule
        assert VIOLATED in {each.verdict for each in ask_oracle({"": damaged})[""]}, rule


def assert_the_judge_of_groups_bites(history: History) -> None:
    """The judge finds damage to what a real group has told its members."""
    begun = next(each for each in history.group_starts if each.member == "final")
    commit = next(each for each in history.group_commits if each.outcome is Known.OK and each.offset)
    beat = next(each for each in history.heartbeats if each.outcome is Known.OK and each.assigned)
    late, older = commit.end + 0.001, commit.epoch - 1
    damages: dict[Rule, Callable[[History], None]] = {
        Rule.COMMIT_LOST: lambda told: told.group_starts.append(replace(begun, offset=begun.offset + 1)),
        Rule.UNREAD: lambda told: told.group_commits.append(replace(commit, offset=1_000_000_000)),
        Rule.STALE_COMMIT: lambda told: told.group_commits.append(
            replace(commit, member="late", epoch=older, start=late, end=late)
        ),
        Rule.TWO_OWNERS: lambda told: told.heartbeats.append(replace(beat, member="other", start=beat.end)),
    }
    for rule, damage in damages.items():
        damaged = replace(
            history,
            heartbeats=list(history.heartbeats),
            group_commits=list(history.group_commits),
            group_starts=list(history.group_starts),
        )
        damage(damaged)
        assert rule in judge(damaged).broken, rule


def _relaid(history: History, final: FinalLog, damage: Callable[[list[Run], int], None]) -> FinalLog:
    """Single values, with damage to an acknowledged one in the middle whose neighbour is of the same batch."""
    values = [Run(0, run.client, run.first + n, 1) for run in final.runs for n in range(run.count)]
    batches = ((a.client, a.first) for a in history.appends if a.outcome is Known.OK and a.count > 1)
    chosen = next(batches_at for batches_at in (_index(values, *batch) for batch in batches) if batches_at is not None)
    damage(values, chosen)
    return replace(final, runs=tuple(replace(value, offset=offset) for offset, value in enumerate(values)))


def _index(values: list[Run], client: str, number: int) -> int | None:
    neighbours = (Run(0, client, number, 1), Run(0, client, number + 1, 1))
    return next((n for n in range(len(values) - 1) if (values[n], values[n + 1]) == neighbours), None)


def _drop(values: list[Run], at: int) -> None:
    del values[at]


def _double(values: list[Run], at: int) -> None:
    values.append(values[at])


def _swap(values: list[Run], at: int) -> None:
    values[at], values[at + 1] = values[at + 1], values[at]
