"""Links in all pages lead somewhere, and the files and folders that ARCHITECTURE.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.infra.compose_file import ROOT

FOLDERS = (
    "docs",
    "benchmarks",
    "client",
    "coordinator",
    "demo",
    "infra",
    "record_batches",
    "services",
    "spark_connector",
    "storage",
    "tests",
    "wire",
)
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
PACKAGE = re.compile(r"`(client|coordinator|services|spark_connector|storage|wire|record_batches)/…/([\w./]*)`")


def anchors(page: Path) -> set[str]:
    """The sections of a page, in the form in which links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        path, _, section = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert "://" in target or there.exists(), target
        assert not section or "://" in target or section in anchors(there), target


def test_paths_in_architecture_exist() -> None:
    named = PACKAGE.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert named
    assert [path for room, path in named if not (ROOT / room / "tidelog" / room / path).exists()] == []
