"""Runs the log oracle on histories; `log_oracle/main.go` defines its verdicts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.log_oracle import program
from tests.chaos.checker.history import History
from tests.chaos.oracle.operations import oracle_lines

WINDOW_TIMEOUT = "60s"
ORACLE_S_MAX = 1_800.0
LINEARIZABLE, VIOLATED, UNDECIDED = "linearizable", "violated", "undecided"


class OracleFailed(Exception):
    """The oracle gave no verdict; the text says why."""


@dataclass(frozen=True)
class PlaceVerdict:
    """The verdict on one partition. `stuck` names the first operations that fit into no order."""

    place: str
    verdict: str
    operations: int
    windows: int
    stuck: Sequence[str] = field(default=())

    def __str__(self) -> str:
        told = f"{self.place} is {self.verdict} ({self.operations} operations in {self.windows} windows)"
        return "\n  ".join([told, *self.stuck])


def ask_oracle(histories: Mapping[str, History], *, timeout: str = WINDOW_TIMEOUT) -> dict[str, list[PlaceVerdict]]:
    """The verdicts on each of the named histories, by partition. Raises `OracleFailed`."""
    lines = [line for name, history in histories.items() for line in oracle_lines(history, f"{name}|")]
    done = subprocess.run(
        [program(), "-timeout", timeout],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=ORACLE_S_MAX,
        check=False,
    )
    if done.stderr:
        raise OracleFailed(done.stderr[-2_000:])
    verdicts: dict[str, list[PlaceVerdict]] = {name: [] for name in histories}
    for each in map(json.loads, done.stdout.splitlines()):
        name, _, place = str(each["place"]).partition("|")
        verdicts[name].append(PlaceVerdict(**{**each, "place": place}))
    return verdicts


def oracle_trouble(verdicts: Sequence[PlaceVerdict]) -> list[str]:
    """A line for each partition that is not linearizable or undecided; one line if nothing was judged at all."""
    if not verdicts:
        return ["the oracle judged no partition"]
    return [f"oracle: {each}" for each in verdicts if each.verdict != LINEARIZABLE]
