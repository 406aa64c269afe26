"""Parts of the harness: values, the schedule, the figures of a report."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from infra.cluster.topology import Shape
from tests.chaos.__main__ import main
from tests.chaos.broker_logs import HANDOVER, TAKEOVER, Handover, handovers_in
from tests.chaos.chaos_run import Outcome, Struck
from tests.chaos.checker.__main__ import main as judge_files
from tests.chaos.checker.history import Outcome as Known
from tests.chaos.checker.history import Run
from tests.chaos.checker.history_lines import format_history
from tests.chaos.checker.judge import judge
from tests.chaos.commit import commit_of
from tests.chaos.fault_kinds import kinds_for
from tests.chaos.faults import Overlap, touched
from tests.chaos.histories import held, sent, story
from tests.chaos.load.calls import BROKEN, NOT_CONNECTED, Answer
from tests.chaos.load.values import Value, runs_of
from tests.chaos.load.workload import Workload, parse_workload
from tests.chaos.report import quantiles, report_on, write_report
from tests.chaos.schedule import plan
from tests.chaos.world import start_hooks

CLUSTER = Shape()


def test_neighbours_that_continue_each_other_are_one_run() -> None:
    values = [Value("p", 7), Value("p", 8), Value("q", 9), Value("q", 11), Value("q", 12, "k")]
    records = [(40 + n, value.text, value.key or None) for n, value in enumerate(values)]
    assert runs_of(records) == [Run(40, "p", 7, 2), Run(42, "q", 9, 1), Run(43, "q", 11, 2)]


def test_a_value_that_was_changed_is_nobodys() -> None:
    text = Value("p", 20, "k").text
    for changed, key in ((text[:-1], "k"), (text, "other"), (text, None), (text.replace("20", "21"), "k"), (None, "k")):
        (run,) = runs_of([(0, changed, key)])
        assert run.client.startswith("?")


def test_a_seed_plans_the_same_faults_and_another_others() -> None:
    def planned(seed: int) -> list[str]:
        return [f"{each.kind} {each.fault} {each.calm_s}" for each in islice(plan(seed, CLUSTER), 60)]

    assert planned(1) == planned(1)
    assert planned(1) != planned(2)


def test_each_round_has_every_kind_once() -> None:
    kinds = kinds_for(CLUSTER)
    assert {each.kind for each in islice(plan(5, CLUSTER), len(kinds))} == set(kinds)


def test_one_broker_is_given_no_fault_that_needs_more() -> None:
    alone = Shape(1, 0)
    faults = [str(each.fault) for each in islice(plan(5, alone), 60)]
    assert not any("etcd" in fault or "broker-2" in fault for fault in faults)


def test_a_workload_crosses_to_another_process_as_it_is() -> None:
    workload = Workload(7, ["http://127.0.0.1:1"], {"ordered": 2, "mixed": 1}, kafka="127.0.0.1:2")
    assert parse_workload(workload.text()) == workload


def test_only_what_the_interface_promises_counts_as_not_taken() -> None:
    def outcome(code: str) -> Known:
        return Answer(503, code, 0, 1).outcome

    assert [outcome(code) for code in ("overloaded", "not_leader", "leader_unknown", NOT_CONNECTED)] == [Known.FAIL] * 4
    assert [outcome(code) for code in ("unavailable", "fenced", "internal", BROKEN)] == [Known.UNKNOWN] * 4
    assert not Answer(500, "internal", 0, 1).expected
    assert Answer(503, "fenced", 0, 1).expected


def test_quantiles_are_of_what_was_there() -> None:
    figures = quantiles(n / 1_000 for n in range(1, 1_001))
    assert (figures.count, figures.p50_ms, figures.p99_ms, figures.max_ms) == (1_000, 501.0, 991.0, 1_000.0)
    assert quantiles([]).max_ms == 0.0


def test_a_fault_is_charged_with_the_outage_it_overlaps_and_the_cure_it_needed(tmp_path: Path) -> None:
    history = story(
        sent("p", 0, at=0, base=0, sequenced=True),
        sent("p", 1, at=2, sequenced=True),
        sent("p", 1, at=9, base=1, sequenced=True),
        sent("p", 2, at=11, base=2, sequenced=True),
        held(Run(0, "p", 0, 3)),
    )
    struck = [Struck("killed", "kill -9 broker-1", 2.5, 8, 10), Struck("other", "pause broker-1", 11, 11.5, 11.6)]
    outcome = Outcome(7, tmp_path, CLUSTER, 0, 60, struck, history, judge(history), "", "v1-0-gabc", [], 0.0)
    report = report_on(outcome)
    killed, other = report.kinds
    assert (killed.outage_s_max, killed.outage_at, killed.cure_s_max) == (9.0, "t/0", 7.0)
    assert (other.outage_s_max, other.cure_s_max) == (2.0, 0.0)
    assert report.calm_append.count == 1
    text = write_report(report, tmp_path).read_text()
    assert "# Chaos, seed 7: holds" in text
    assert "Commit v1-0-gabc." in text
    assert "| killed | 1 | 9.00 | t/0 | 7.00 | 2.00 |" in text


def test_trouble_breaks_a_run_that_the_judge_passes(tmp_path: Path) -> None:
    history = story(sent("p", 0, at=0, outcome=Known.FAIL), held())
    outcome = Outcome(
        7, tmp_path, CLUSTER, 0, 60, [], history, judge(history), "", "v1-0-gabc", ["unexpected answer: 500"], 0.0
    )
    assert not outcome.holds
    assert "seed 7" in outcome.summary()
    assert "unexpected answer: 500" in write_report(report_on(outcome), tmp_path).read_text()


def test_a_shard_that_changes_hands_is_timed_by_what_the_brokers_log(tmp_path: Path) -> None:
    def log(broker: str, *events: tuple[float, str]) -> None:
        lines = (f'{{"time":"1970-01-01T00:00:{at:06.3f}+00:00","message":"{message}"}}\n' for at, message in events)
        (tmp_path / f"{broker}.log").write_text("".join(lines) + "not JSON\n")

    log("broker-1", (1, "shard 2 is led here in epoch 1"), (5, "shard 2 is released"), (6, "listening"))
    log("broker-2", (5.25, "shard 2 is led here in epoch 2"))
    log("broker-3", (13, "shard 2 is led here in epoch 3"))
    assert handovers_in(tmp_path, [2.0, 8.0]) == [Handover(HANDOVER, 2, 0.25), Handover(TAKEOVER, 2, 5.0)]


def test_a_release_by_a_broker_that_had_lost_the_shard_is_not_where_a_handover_begins(tmp_path: Path) -> None:
    def log(broker: str, *events: tuple[float, str]) -> None:
        lines = (f'{{"time":"1970-01-01T00:00:{at:06.3f}+00:00","message":"{message}"}}\n' for at, message in events)
        (tmp_path / f"{broker}.log").write_text("".join(lines))

    log("broker-1", (1, "shard 2 is led here in epoch 1"), (7, "shard 2 is released"))
    log("broker-2", (5, "shard 2 is led here in epoch 2"))
    log("broker-3", (31, "shard 2 is led here in epoch 3"), (40, "shard 2 is released"))
    log("broker-4", (40.5, "shard 2 is led here in epoch 4"))
    expected = [Handover(TAKEOVER, 2, 2.0), Handover(TAKEOVER, 2, 3.0), Handover(HANDOVER, 2, 0.5)]
    assert handovers_in(tmp_path, [3.0, 28.0]) == expected


def test_a_pair_of_faults_touches_different_things() -> None:
    pairs = [each.fault for each in islice(plan(3, CLUSTER, ["two faults at once"]), 200)]
    assert all(isinstance(pair, Overlap) and not touched(pair.first) & touched(pair.second) for pair in pairs)
    assert len({str(pair) for pair in pairs}) > len(pairs) / 2


def test_a_report_names_its_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == "unknown"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path)]
    for arguments in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run([*git, *arguments], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert sha.startswith(commit_of(tmp_path))


def test_a_stepped_clock_moves_the_wall_clock_of_one_broker_and_no_other(tmp_path: Path) -> None:
    def now_ms(port: str) -> int:
        environment = {**os.environ, **start_hooks(tmp_path), "TIDELOG_PORT": port}
        script = "from tidelog.storage.runtime import SystemClock; print(SystemClock().now_ms())"
        command = [sys.executable, "-c", script]
        return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

    (tmp_path / "8081").write_text("-300000")
    assert now_ms("8082") - now_ms("8081") > 250_000


def test_the_command_names_the_kinds_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kind", "broker kiled"]) == 2
    assert "known are broker killed, " in capsys.readouterr().err


def test_a_history_that_was_kept_is_judged_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "history.jsonl"
    kept.write_text("\n".join(format_history(story(sent("p", 0, at=0, base=0), held(Run(0, "p", 0, 1))))))
    assert judge_files([str(kept)]) == 0
    kept.write_text("\n".join(format_history(story(sent("p", 0, at=0, base=0), held()))))
    assert judge_files([str(kept)]) == 1
    assert "LOST" in capsys.readouterr().out
