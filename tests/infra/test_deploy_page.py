"""docs/deploy.md and the runbook: everything they name exists."""

from __future__ import annotations

import re

import pytest
from tests.infra.compose_file import ROOT, services

from tidelog.services.settings.settings_sources import known_settings

DOCS = ROOT / "docs"
PAGES = ("deploy.md", "operate.md", "../infra/README.md")
EACH_PAGE = pytest.mark.parametrize("page", PAGES)


@EACH_PAGE
def test_files_that_are_named_exist(page: str) -> None:
    named = re.findall(r"`?\b(infra/[\w./-]+\w)", (DOCS / page).read_text())
    missing = [path for path in named if not (ROOT / path).exists() and not path.endswith("/mine")]
    assert missing == []


def test_settings_that_are_named_exist() -> None:
    text = (DOCS / "deploy.md").read_text()
    named = {name for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", text) if not name.startswith("status.")}
    assert named - set(known_settings()) == set()
    variables = set(re.findall(r"`(TIDELOG_[A-Z_]+)`", text))
    assert variables <= {setting.variable for setting in known_settings().values()}


def test_commands_name_services_of_the_compose_file() -> None:
    text = (DOCS / "deploy.md").read_text()
    named = set(re.findall(r"\b((?:broker|etcd)-\d)\b", text))
    assert named
    assert named <= set(services())


def test_addresses_are_those_that_compose_opens() -> None:
    text = (DOCS / "deploy.md").read_text()
    told = set(re.findall(r"http://127\.0\.0\.1:(\d+)", text)) | set(re.findall(r"`:(\d+)`", text))
    opened = {port.split(":")[1] for service in services().values() for port in service.get("ports", [])}
    assert told == opened
