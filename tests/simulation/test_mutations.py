"""The simulation catches every wrong version of the protocol, by an invariant that says what went wrong."""

from __future__ import annotations

import functools

import pytest
from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import Outcome, World

SEEDS_MAX = 1_000


@functools.cache
def first_broken(name: str) -> Outcome | None:
    outcomes = (World(seed, MUTATIONS[name]).run() for seed in range(SEEDS_MAX))
    return next((outcome for outcome in outcomes if outcome.violation), None)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_wrong_protocol_is_caught(name: str) -> None:
    outcome = first_broken(name)
    assert outcome is not None, f"{SEEDS_MAX} seeds did not catch it"
    assert outcome.violation is not None
    assert outcome.violation.startswith(("inv. ", "liveness", "linearizable"))


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("no floor check", "inv. 1"),
        ("acknowledges before the create", "inv. 1"),
        ("forgets the floor's epoch", "inv. 3"),
        ("goes on behind another's entry", "inv. 3"),
        ("floor before manifest", "inv. 5"),
        ("no grace", "inv. 6"),
        ("tells ends without a proof", "linearizable"),
        ("tells ends without a look at the floor", "linearizable"),
    ],
)
def test_the_invariant_broken_is_the_one_that_the_mutation_touches(name: str, invariant: str) -> None:
    outcome = first_broken(name)
    assert outcome is not None
    assert outcome.violation is not None
    assert outcome.violation.startswith(invariant)
