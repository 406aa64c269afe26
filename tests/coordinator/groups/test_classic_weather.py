"""Classic groups while coordinators crash, clients die and answers get lost: each client gets one assignment for each
generation, and once the faults end, everybody settles."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.classic_clients import SESSION_MS, SETTLE_MS, ClassicWorld
from tests.coordinator.groups.seeds import seeds


@pytest.mark.parametrize("faults", [0.008, 0.03])
@pytest.mark.parametrize("seed", seeds(12, soak=200))
def test_everybody_settles_once_the_faults_end(seed: int, faults: float) -> None:
    world = ClassicWorld(seed, faults)
    world.run(600_000)
    world.faults = 0.0
    world.run(SETTLE_MS)
    assert not [client.name for client in world.clients.values() if client.gave_up], "a living client was fenced"
    assert world.settled()
    assert world.crashes > 0
    assert len(world.given) > 3
    generation = world.group.members.describe().epoch
    world.run(4 * SESSION_MS)
    assert world.settled()
    assert world.group.members.describe().epoch == generation, "a quiet group keeps its generation"


def test_a_crash_of_the_coordinator_costs_a_stable_group_nothing() -> None:
    world = ClassicWorld(7, faults=0.0)
    world.run(SETTLE_MS)
    before = world.group.members.describe()
    for _ in range(5):
        world.run(SESSION_MS)
        world.group.crash()
        assert world.settled()
    assert world.group.members.describe() == before


def test_a_run_is_the_same_for_the_same_seed() -> None:
    first, second = ClassicWorld(3), ClassicWorld(3)
    first.run(60_000)
    second.run(60_000)
    assert first.group.stored == second.group.stored
