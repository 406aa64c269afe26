"""The end of a run lists the skipped tests: one line for each missing component, with how to get it, and one line for
each other reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from infra.components import COMPONENTS
from tests.components.required import missing_line


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    lines = skipped_lines(report.longrepr[2] for report in skipped)
    if lines:
        terminalreporter.section("left out")
        for line in lines:
            terminalreporter.write_line(line)


def skipped_lines(reasons: Iterable[str]) -> list[str]:
    """The lines for the reasons of all skipped tests."""
    tests = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    remedies = {missing_line(known): known for known in COMPONENTS}
    missing = [
        f"{_tests(tests[line])} for want of {known.name} ({known.purpose}). To run them: {known.how}"
        for line, known in remedies.items()
        if line in tests
    ]
    return missing + [f"{_tests(count)}: {reason}" for reason, count in tests.items() if reason not in remedies]


def _tests(count: int) -> str:
    return f"{count} test{'s' if count > 1 else ''}"
