"""The judge on random histories: those of a correct service pass, and every random damage is found."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.attempts import attempts, within
from tests.chaos.checker.history import Append, EndQuery, FinalLog, History, Outcome, Place, Read, Run
from tests.chaos.checker.judge import judge
from tests.chaos.checker.violation import Rule
from tests.chaos.histories import TOPIC, held, random_history, seen, sent, story

GROWTH_MAX = 9.0
"""Of the cost, for four times the history. A cost that grows with its square grows by 16."""

Damage = Callable[[History, random.Random], None]

seeds = st.integers(min_value=0, max_value=1 << 32)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@given(seeds)
@quick
def test_a_correct_service_passes(seed: int) -> None:
    verdict = judge(random_history(random.Random(seed)))
    assert verdict.holds, verdict


def an_acknowledged(history: History, draw: random.Random) -> Append:
    acknowledged = [append for append in history.appends if append.outcome is Outcome.OK]
    assume(acknowledged)
    return draw.choice(acknowledged)


def a_log(history: History, draw: random.Random, *, at_least: int = 1) -> int:
    long_enough = [n for n, final in enumerate(history.finals) if len(final.runs) >= at_least]
    assume(long_enough)
    return draw.choice(long_enough)


def relay(final: FinalLog, runs: list[Run]) -> FinalLog:
    """`final` with other values at dense offsets."""
    return replace(final, runs=tuple(replace(run, offset=offset) for offset, run in enumerate(runs)))


def lose(history: History, draw: random.Random) -> None:
    lost = an_acknowledged(history, draw)
    number = lost.first + draw.randrange(lost.count)
    for n, final in enumerate(history.finals):
        runs = [run for run in final.runs if (run.client, run.first) != (lost.client, number)]
        history.finals[n] = relay(final, runs)


def double(history: History, draw: random.Random) -> None:
    n = a_log(history, draw)
    runs = list(history.finals[n].runs)
    runs.insert(draw.randrange(len(runs) + 1), draw.choice(runs))
    history.finals[n] = relay(history.finals[n], runs)


def swap(history: History, draw: random.Random) -> None:
    """Swap the values of an acknowledged append with the next ones."""
    n = a_log(history, draw, at_least=2)
    runs = list(history.finals[n].runs)
    told = {(a.client, a.first + i) for a in history.appends if a.outcome is Outcome.OK for i in range(a.count)}
    candidates = [i for i in range(len(runs) - 1) if (runs[i].client, runs[i].first) in told]
    assume(candidates)
    i = draw.choice(candidates)
    runs[i], runs[i + 1] = runs[i + 1], runs[i]
    history.finals[n] = relay(history.finals[n], runs)


def invent(history: History, draw: random.Random) -> None:
    n = a_log(history, draw, at_least=0)
    runs = list(history.finals[n].runs)
    runs.append(Run(0, "nobody", draw.randrange(100), 1))
    history.finals[n] = relay(history.finals[n], runs)


def punch_a_hole(history: History, draw: random.Random) -> None:
    n = a_log(history, draw)
    final = history.finals[n]
    at = draw.randrange(len(final.runs))
    runs = (*final.runs[:at], *(replace(run, offset=run.offset + 1) for run in final.runs[at:]))
    history.finals[n] = replace(final, runs=runs)


def take_what_was_refused(history: History, draw: random.Random) -> None:
    refused = [append for append in history.appends if append.outcome is Outcome.FAIL]
    assume(refused)
    one = draw.choice(refused)
    final = history.finals[0]
    runs = [*final.runs, *(Run(0, one.client, one.first + i, 1) for i in range(one.count))]
    history.finals[0] = relay(final, runs)


def answer_another_offset(history: History, draw: random.Random) -> None:
    one = an_acknowledged(history, draw)
    moved = tuple(replace(place, base_offset=place.base_offset + draw.choice((-1, 1, 7))) for place in one.placed)
    history.appends[history.appends.index(one)] = replace(one, placed=moved)


def a_read(history: History, draw: random.Random, *, at_least: int) -> int:
    reads = [n for n, read in enumerate(history.reads) if len(read.runs) >= at_least]
    assume(reads)
    return draw.choice(reads)


def show_another_record(history: History, draw: random.Random) -> None:
    n = a_read(history, draw, at_least=1)
    runs = list(history.reads[n].runs)
    at = draw.randrange(len(runs))
    runs[at] = replace(runs[at], client="somebody else")
    history.reads[n] = replace(history.reads[n], runs=tuple(runs))


def leave_out_of_a_read(history: History, draw: random.Random) -> None:
    n = a_read(history, draw, at_least=2)
    runs = list(history.reads[n].runs)
    del runs[draw.randrange(len(runs) - 1)]
    history.reads[n] = replace(history.reads[n], runs=tuple(runs))


def send_a_reader_back(history: History, draw: random.Random) -> None:
    n = a_read(history, draw, at_least=1)
    history.reads[n] = replace(history.reads[n], next_offset=history.reads[n].next_offset - 1)


def refuse_a_reached_offset(history: History, draw: random.Random) -> None:
    n = a_read(history, draw, at_least=1)
    read = history.reads[n]
    at = read.start + 1e-9
    history.reads.append(
        replace(read, offset=read.next_offset, next_offset=0, runs=(), start=at, end=at, outcome=Outcome.OUT_OF_RANGE)
    )


def win_late(history: History, draw: random.Random) -> None:
    """Let an acknowledged append begin after the whole log was read."""
    one = an_acknowledged(history, draw)
    end = max([append.end for append in history.appends] + [read.end for read in history.reads])
    n = history.appends.index(one)
    partition = one.placed[0].partition
    runs = history.finals[partition].runs
    history.reads.append(Read("late", TOPIC, partition, 0, len(runs), runs, start=end, end=end + 1, outcome=Outcome.OK))
    history.appends[n] = replace(one, start=end + 2, end=end + 3)
    assume(sum((a.client, a.first) == (one.client, one.first) for a in history.appends) == 1)


def moments(history: History) -> float:
    """A time at which all operations are over."""
    ends = [[each.end for each in kind] for kind in (history.appends, history.reads, history.ends)]
    return max(chain.from_iterable(ends), default=0.0)


def read_nothing_at_an_old_end(history: History, draw: random.Random) -> None:
    one, late = an_acknowledged(history, draw), moments(history) + 1
    at = draw.randrange(one.placed[0].base_offset + one.count)
    partition = one.placed[0].partition
    history.reads.append(Read("late", TOPIC, partition, at, at, start=late, end=late + 1, outcome=Outcome.OK))


def refuse_an_acknowledged_offset(history: History, draw: random.Random) -> None:
    one, late = an_acknowledged(history, draw), moments(history) + 1
    at = draw.randrange(one.placed[0].base_offset + one.count)
    partition = one.placed[0].partition
    history.reads.append(Read("late", TOPIC, partition, at, at, start=late, end=late + 1, outcome=Outcome.OUT_OF_RANGE))


def answer_an_old_end(history: History, draw: random.Random) -> None:
    one, late = an_acknowledged(history, draw), moments(history) + 1
    at = draw.randrange(one.placed[0].base_offset + one.count)
    partition = one.placed[0].partition
    history.ends.append(EndQuery("late", TOPIC, partition, at, start=late, end=late + 1, outcome=Outcome.OK))


def answer_an_end_that_had_not_come(history: History, draw: random.Random) -> None:
    one = an_acknowledged(history, draw)
    end = one.placed[0].base_offset + one.count
    assume(sum((a.client, a.first) == (one.client, one.first) for a in history.appends) == 1)
    early = one.start - 1
    history.ends.append(
        EndQuery("early", TOPIC, one.placed[0].partition, end, start=early, end=early + 0.5, outcome=Outcome.OK)
    )


def fail_in_calm_weather(history: History, draw: random.Random) -> None:
    late = moments(history) + 100
    history.faults[0] = replace(history.faults[0], end=moments(history))
    history.reads.append(
        Read("late", TOPIC, 0, 0, 0, start=late, end=late + 1, outcome=Outcome.UNKNOWN, code="unavailable")
    )


def forget_a_sequence(history: History, draw: random.Random) -> None:
    """Remove a batch of the producer with sequences, but not its last: it was never acknowledged and is not in the
    log."""
    sequenced = {run.first for run in history.finals[0].runs if run.client == "careful"}
    firsts = [a.first for a in history.appends if a.sequenced and a.first in sequenced]
    assume(len(set(firsts)) > 1)
    one = draw.choice([first for first in firsts if first < max(firsts)])
    numbers = {one + n for a in history.appends if a.sequenced and a.first == one for n in range(a.count)}
    history.appends[:] = [
        replace(a, outcome=Outcome.UNKNOWN, placed=()) if a.sequenced and a.first == one else a for a in history.appends
    ]
    kept = [run for run in history.finals[0].runs if run.client != "careful" or run.first not in numbers]
    history.finals[0] = relay(history.finals[0], kept)


def record_nothing(history: History, draw: random.Random) -> None:
    history.appends.clear()
    history.reads.clear()
    history.finals.clear()


def conflict_by_an_old_state(history: History, draw: random.Random) -> None:
    end = max([append.end for append in history.appends] + [read.end for read in history.reads], default=0.0)
    n = a_log(history, draw)
    final = history.finals[n]
    length = len(final.runs)
    history.reads.append(
        Read("late", TOPIC, final.partition, 0, length, final.runs, start=end, end=end + 1, outcome=Outcome.OK)
    )
    old = draw.randrange(length)
    history.appends.append(
        sent("late", 0, at=end + 2, partition=final.partition, outcome=Outcome.CONFLICT, expected=9, next_offset=old)
    )


DAMAGES: list[tuple[Damage, set[Rule]]] = [
    (lose, {Rule.LOST}),
    (double, {Rule.DUPLICATED}),
    (swap, {Rule.MISPLACED, Rule.REORDERED}),
    (invent, {Rule.INVENTED}),
    (punch_a_hole, {Rule.NOT_DENSE}),
    (take_what_was_refused, {Rule.REFUSED_YET_TAKEN}),
    (answer_another_offset, {Rule.MISPLACED}),
    (show_another_record, {Rule.DISAGREEMENT}),
    (leave_out_of_a_read, {Rule.SKIPPED}),
    (send_a_reader_back, {Rule.WENT_BACK}),
    (refuse_a_reached_offset, {Rule.CUT_OFF}),
    (win_late, {Rule.APPEND_ORDER}),
    (conflict_by_an_old_state, {Rule.CONFLICT_ANSWER}),
    (read_nothing_at_an_old_end, {Rule.END_ANSWER}),
    (refuse_an_acknowledged_offset, {Rule.CUT_OFF}),
    (answer_an_old_end, {Rule.END_ANSWER}),
    (answer_an_end_that_had_not_come, {Rule.END_ANSWER}),
    (fail_in_calm_weather, {Rule.UNEXCUSED}),
    (forget_a_sequence, {Rule.SEQUENCE_GAP}),
    (record_nothing, {Rule.NOTHING_RECORDED}),
]


@pytest.mark.parametrize(("damage", "rules"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
@given(seed=seeds)
@quick
def test_every_damage_is_found(damage: Damage, rules: set[Rule], seed: int) -> None:
    draw = random.Random(seed)
    history = random_history(draw)
    damage(history, draw)
    verdict = judge(history)
    assert rules & set(verdict.broken), verdict


def test_the_cost_of_a_verdict_grows_no_faster_than_the_history() -> None:
    for attempt in attempts():
        with attempt:
            first_s = judged_cpu_s(40_000)
            within(GROWTH_MAX * first_s, judged_cpu_s(160_000), f"CPU time of four times what took {first_s:.3f} s")


def judged_cpu_s(values: int) -> float:
    """The CPU time of a verdict on a history of so many values."""
    batch, lanes = 20, 10
    appends = [
        sent(f"p{n % lanes}", n // lanes * batch, batch, at=n, base=n * batch, sequenced=True, took=0.5)
        for n in range(values // batch)
    ]
    runs = [Run(a.placed[0].base_offset, a.client, a.first, a.count) for a in appends]
    reads = [seen("r", run.offset, run, at=n) for n, run in enumerate(runs)]
    history = story(*appends, *reads, held(*runs))
    began = time.process_time()
    verdict = judge(history)
    took_s = time.process_time() - began
    assert verdict.holds, verdict
    assert verdict.values_in_log == verdict.values_read == values
    return took_s


def test_a_damaged_answer_names_the_client_that_got_it() -> None:
    wrong = Append("p", TOPIC, 0, 0, 1, (Place(0, 3, 1),), start=0, end=1, outcome=Outcome.OK)
    (violation,) = judge(story(wrong, held(Run(0, "p", 0, 1)))).violations
    assert "p:0..0" in str(violation)
    assert "t/0@0" in str(violation)
