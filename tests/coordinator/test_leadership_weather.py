"""Seeded lives of a cluster (`leadership_weather`). To repeat a seed that fails, run ``python -m
tests.coordinator.leadership_weather SEED``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.coordinator.leadership_weather import live
from tests.coordinator.virtual_time import run_virtually

SEEDS_EACH = 20


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("first", range(0, 120, SEEDS_EACH))
def test_after_any_faults_the_cluster_comes_to_rest(first: int) -> None:
    _all_come_to_rest(range(first, first + SEEDS_EACH))


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_many_seeded_lives_come_to_rest() -> None:
    _all_come_to_rest(range(1_000, 1_500))


def test_a_life_is_the_same_each_time() -> None:
    assert run_virtually(live(4)) == run_virtually(live(4))


def _all_come_to_rest(seeds: Sequence[int]) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += run_virtually(live(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert seen["settled"] == len(seeds)
    assert {"kill", "stop", "cut", "outage", "errors", "wipe", "recover", "drain", "fencings"} <= set(seen)
