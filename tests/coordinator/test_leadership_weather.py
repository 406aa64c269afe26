"""Hundreds of seeded lives of a cluster (`leadership_weather`). A seed that fails is replayed by
``python -m tests.coordinator.leadership_weather SEED``."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from tests.coordinator.leadership_weather import live
from tests.coordinator.virtual_time import run_virtually

SEEDS_EACH = 20


@pytest.mark.parametrize("first", range(0, 120, SEEDS_EACH))
def test_whatever_happens_the_cluster_comes_to_rest(
    first: int, caplog: pytest.LogCaptureFixture, count: int = SEEDS_EACH
) -> None:
    caplog.set_level(logging.CRITICAL)
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            seen += run_virtually(live(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert seen["settled"] == count
    assert {"kill", "stop", "cut", "outage", "errors", "wipe", "recover", "drain", "fencings"} <= set(seen)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_whatever_happens_for_long(caplog: pytest.LogCaptureFixture) -> None:
    test_whatever_happens_the_cluster_comes_to_rest(1_000, caplog, 500)


def test_a_life_is_the_same_each_time() -> None:
    assert run_virtually(live(4)) == run_virtually(live(4))
