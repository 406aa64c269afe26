"""The rule for real components.

A test whose component is absent is skipped and says how to get it. If all components are required, as in CI, it fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from infra.component import Component
from infra.components import component


def require_component(name: str) -> Path:
    """Return the path of the component. Skips the test if it is absent; fails it if ``TIDELOG_REQUIRE_ALL=1``."""
    wanted = component(name)
    place = wanted.find()
    if place is not None:
        return place
    line = missing_line(wanted)
    if os.environ.get("TIDELOG_REQUIRE_ALL") == "1":
        pytest.fail(line)
    pytest.skip(line)


def missing_line(wanted: Component) -> str:
    """The reason why a test is skipped, in the form that `missing_summary` recognises."""
    return f"{wanted.name} is not on this machine: {wanted.how}"
