"""The log oracle accepts good histories, rejects bad ones, and agrees with the judge where both judge."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infra.log_oracle import program
from tests.chaos.bad_histories import BAD
from tests.chaos.checker.history import History, Outcome, Run
from tests.chaos.checker.history_lines import Operation, format_history
from tests.chaos.checker.judge import judge
from tests.chaos.checker.violation import Rule
from tests.chaos.good_histories import GOOD
from tests.chaos.histories import asked_end, held, random_history, seen, sent, story
from tests.chaos.oracle.__main__ import main as oracle_on_files
from tests.chaos.oracle.oracle import LINEARIZABLE, UNDECIDED, VIOLATED, OracleFailed, ask_oracle, oracle_trouble
from tests.chaos.test_judge_properties import DAMAGES, Damage, refuse_a_reached_offset
from tests.components.required import require_component

HISTORIES = 50
NOT_LINEARIZABILITY = {
    Rule.NOTHING_RECORDED,
    Rule.UNEXCUSED,
    Rule.ACKS_1_LOSS,
    Rule.REORDERED,
    Rule.SEQUENCE_GAP,
    Rule.KEY_MOVED,
    Rule.WENT_BACK,
    Rule.SKIPPED,
    Rule.LOG_START,
    Rule.UNDELETED,
    Rule.TWO_OWNERS,
    Rule.COMMIT_WENT_BACK,
    Rule.STALE_COMMIT,
    Rule.STALE_READ,
    Rule.COMMIT_LOST,
    Rule.UNREAD,
}
"""Promises about sessions, groups, producers and settings, which a linearizable log may break."""
LOG_DAMAGES = [
    damage
    for damage, rules in DAMAGES
    if (not rules & NOT_LINEARIZABILITY or Rule.MISPLACED in rules) and damage is not refuse_a_reached_offset
]


@pytest.fixture(autouse=True, scope="module")
def _oracle() -> None:
    require_component("log-oracle")


def violated(verdicts: dict[str, list[str]], name: str) -> bool:
    return VIOLATED in verdicts[name]


def asked(histories: dict[str, History]) -> dict[str, list[str]]:
    return {name: [each.verdict for each in found] for name, found in ask_oracle(histories).items()}


def test_good_histories_are_linearizable() -> None:
    verdicts = asked(GOOD)
    assert {verdict for found in verdicts.values() for verdict in found} == {LINEARIZABLE}


def test_every_bad_history_is_rejected_by_one_of_the_two_and_those_of_linearizability_by_both() -> None:
    verdicts = asked({name: history for name, (_, history) in BAD.items()})
    for name, (rule, history) in BAD.items():
        assert not judge(history).holds, name
        plain = not any(rules.compacted or rules.expires for rules in history.topics)
        logs_that_grow = plain and not any(final.log_start_offset for final in history.finals)
        if rule not in NOT_LINEARIZABILITY and logs_that_grow:
            assert violated(verdicts, name), f"{name} ({rule.name}): {verdicts[name]}"


def test_the_two_agree_on_random_histories_of_a_correct_service() -> None:
    histories = {str(seed): random_history(random.Random(seed)) for seed in range(HISTORIES)}
    verdicts = asked(histories)
    assert {verdict for found in verdicts.values() for verdict in found} == {LINEARIZABLE}
    assert all(judge(history).holds for history in histories.values())


def test_the_two_agree_on_shuffled_small_histories() -> None:
    histories = {str(seed): small_history(random.Random(seed)) for seed in range(HISTORIES * 10)}
    verdicts = asked(histories)
    broken = {name for name, history in histories.items() if set(judge(history).broken) - NOT_LINEARIZABILITY}
    assert {name for name in histories if violated(verdicts, name)} == broken
    assert len(histories) / 10 < len(broken) < len(histories) * 9 / 10


def small_history(draw: random.Random) -> History:
    """A log of a few values, with answers that are true at some moment or slightly wrong."""
    length = draw.randint(1, 4)
    times = sorted(draw.uniform(0, 10) for _ in range(length))
    appends = [
        sent(f"p{n}", 0, at=at - draw.uniform(0, 2), took=draw.uniform(2, 4), base=n if draw.random() < 0.7 else None)
        for n, at in enumerate(times)
    ]
    looks: list[Operation] = []
    for n in range(draw.randint(1, 3)):
        at, took = draw.uniform(0, 12), draw.uniform(0, 3)
        end = sum(time < at + took / 2 for time in times) + draw.choice((0, 0, 0, 0, 1, -1))
        end = min(max(end, 0), length)
        looks.append(asked_end(f"q{n}", end, at=at, took=took))
        looks_at = draw.randint(0, end)
        runs = [Run(offset, f"p{offset}", 0, 1) for offset in range(looks_at, end)]
        looks.append(seen(f"r{n}", looks_at, *runs, at=at, took=took))
    return story(*appends, *looks, held(*(Run(n, f"p{n}", 0, 1) for n in range(length))))


@pytest.mark.parametrize("damage", LOG_DAMAGES, ids=[damage.__name__ for damage in LOG_DAMAGES])
@given(seed=st.integers(min_value=0, max_value=1 << 32))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_the_oracle_finds_every_damage_of_a_log(damage: Damage, seed: int) -> None:
    draw = random.Random(seed)
    history = random_history(draw)
    damage(history, draw)
    assert VIOLATED in asked({"": history})[""]


def test_a_history_longer_than_a_window_is_judged_in_several() -> None:
    appends = [sent("p", n, at=2 * n, base=n) for n in range(1_200)]
    good = story(*appends, held(Run(0, "p", 0, 1_200)))
    late = story(*appends, asked_end("q", 1_100, at=2_390), held(Run(0, "p", 0, 1_200)))
    verdicts = ask_oracle({"good": good, "late": late})
    (holds,), (broken,) = verdicts["good"], verdicts["late"]
    assert (holds.verdict, holds.windows) == (LINEARIZABLE, 3)
    assert broken.verdict == VIOLATED
    assert "q at offset 1100 (end, 2390.000 to 2391.000)" in "".join(broken.stuck)


def test_a_search_that_takes_too_long_is_undecided_and_no_pass() -> None:
    rivals = [sent(f"p{n}", 0, at=0, took=100, base=None) for n in range(400)]
    looks = [asked_end(f"q{n}", n % 400, at=0, took=100) for n in range(4_000)]
    history = story(*rivals, *looks, held(*(Run(n, f"p{n}", 0, 1) for n in range(400))))
    (found,) = ask_oracle({"": history}, timeout="1ns")[""]
    assert found.verdict == UNDECIDED
    assert oracle_trouble([found])
    assert oracle_trouble([])


def test_a_history_that_was_kept_is_judged_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "history.jsonl"
    kept.write_text("\n".join(format_history(GOOD["two acknowledged"])))
    assert oracle_on_files([str(kept)]) == 0
    kept.write_text("\n".join(format_history(BAD["an acknowledged record is gone"][1])))
    assert oracle_on_files([str(kept)]) == 1
    assert "t/0 is violated" in capsys.readouterr().out


def test_an_invalid_history_is_refused() -> None:
    unplaced = sent("p", 0, at=0, outcome=Outcome.OK, partition=0)
    assert program().is_file()
    with pytest.raises(OracleFailed):
        ask_oracle({"": story(unplaced, sent("q", 0, at=0, outcome=Outcome.CONFLICT, expected=0), held())})
