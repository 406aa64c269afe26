"""The broker that the programs of this folder talk to: `served`, with short times for groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kafka.conftest import SETTINGS

from tidelog.services.settings.settings import Settings


@pytest.fixture
def settings() -> Settings:
    return replace(
        SETTINGS,
        group_initial_rebalance_delay_ms=100,
        group_consumer_heartbeat_interval_ms=200,
    )
