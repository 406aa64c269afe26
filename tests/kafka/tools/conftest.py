"""Kafka's tools, and the broker that they are run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.components.required import require_component
from tests.kafka.conftest import KafkaServed
from tests.kafka.tools.tools_jvm import Tools, ToolsJvm, tools_jvm


@pytest.fixture(scope="session")
def jvm() -> Iterator[ToolsJvm]:
    with tools_jvm(require_component("kafka")) as running:
        yield running


@pytest.fixture
def tools(jvm: ToolsJvm, served: KafkaServed) -> Tools:
    return Tools(jvm, f"127.0.0.1:{served.port}")
