"""Kafka 4.1 and Tidelog answer the same requests with the same fields, in every version that Tidelog serves."""

from __future__ import annotations

import pytest
from tests.kafka.oracle import (
    admin_scenarios,
    config_scenarios,
    group_scenarios,
    position_scenarios,
    rebalance_scenarios,
    record_scenarios,
    topic_scenarios,
)
from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import SCENARIOS, Scenario

LISTED = (
    admin_scenarios,
    config_scenarios,
    group_scenarios,
    position_scenarios,
    rebalance_scenarios,
    record_scenarios,
    topic_scenarios,
)
"""The modules whose scenarios run here: to import one is to list its scenarios."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_the_answers_differ_only_where_that_is_declared(pair: Pair, scenario: Scenario) -> None:
    await scenario.run(pair)
    assert not pair.found, "\n".join(["Tidelog answers differently:", *pair.found])
