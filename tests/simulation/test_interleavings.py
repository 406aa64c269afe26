"""Every interleaving of a commit, a takeover and a truncation keeps the invariants; without one of the checks some do
not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.interleavings import GRACE_MS, Plot, explore
from tests.simulation.writer_mutations import NoFloorCheck, NoFloorCheckAfterConflict, NoFloorCheckOfStart

from tidelog.storage.wal.wal_writer import WalWriter


@pytest.mark.parametrize("trust_s", [Plot.trust_s, 0.0], ids=["trusting the clock", "reading the floor"])
@pytest.mark.parametrize(
    ("plot", "states_at_least"),
    [
        (Plot(), 300),
        (Plot(truncations=2, floor_in_steps=False), 1_000),
        (Plot(answer_lost=True), 500),
        (Plot(truncations=2, answer_lost=True, floor_in_steps=False), 2_000),
    ],
    ids=["one truncation", "two truncations", "a lost answer", "two truncations and a lost answer"],
)
def test_every_interleaving_keeps_the_invariants(plot: Plot, states_at_least: int, trust_s: float) -> None:
    explored = explore(replace(plot, trust_s=trust_s))
    assert explored.violation is None
    assert explored.states >= states_at_least


@pytest.mark.parametrize(
    ("writer", "answer_lost"),
    [(NoFloorCheck, False), (NoFloorCheckOfStart, False), (NoFloorCheckAfterConflict, True)],
)
def test_some_interleaving_shows_why_the_floor_is_read(writer: type[WalWriter], answer_lost: bool) -> None:
    explored = explore(Plot(writer, answer_lost=answer_lost))
    assert explored.violation is not None
    assert explored.violation.startswith("inv. 1")


def test_some_interleaving_shows_why_the_trust_is_shorter_than_the_grace() -> None:
    explored = explore(Plot(trust_s=GRACE_MS / 1000 + 0.001))
    assert explored.violation is not None
    assert explored.violation.startswith("inv. 1")
    assert explore(Plot(trust_s=GRACE_MS / 1000)).violation is None
