"""Consumer groups under seeded trouble in virtual time; see `simulated_group`.

Each mutation removes one rule of the machine. The simulation must notice each of them, or it would prove nothing."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.simulated_group import SimulatedGroup

SEEDS = 2_000
BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_group_keeps_its_promises(block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        try:
            SimulatedGroup(seed).run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
