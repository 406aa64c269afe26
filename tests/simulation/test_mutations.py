"""The simulation catches every wrong version of the product, by the rule that the mistake breaks."""

from __future__ import annotations

import pytest
from tests.simulation.mutations import MUTATIONS
from tests.simulation.world import World

SEEDS_MAX = 1_000


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_wrong_version_is_caught_by_its_rule(name: str) -> None:
    mutation = MUTATIONS[name]
    outcomes = (World(seed, mutation.cast).run() for seed in range(SEEDS_MAX))
    violation = next((outcome.violation for outcome in outcomes if outcome.violation), None)
    assert violation is not None, f"{SEEDS_MAX} seeds did not catch it"
    assert violation.startswith(mutation.rules)
