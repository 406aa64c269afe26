"""Prometheus' rules: every metric in them is exported, and every alert links to a section that says what to do."""

from __future__ import annotations

import re
from typing import Any

import promql_parser
import pytest
import yaml
from infra.alert_rules import ALERTS, RULE, prometheus_rule, with_runbook
from tests.components.etcd_server import EtcdServer
from tests.infra import exported
from tests.infra.compose_file import ROOT, services
from tests.infra.promql import kept_labels, unknown

from tidelog.services.settings.settings import Settings

FOLDER = ROOT / "infra/prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
CONFIG: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
EACH_RULE = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


async def test_every_metric_in_them_is_exported(etcd: EtcdServer) -> None:
    known = {**await exported.of_a_broker_in_a_cluster(), **await exported.of_etcd(etcd)}
    assert [found for rule in RULES for found in unknown(rule["expr"], known)] == []


@EACH_RULE
def test_an_alert_says_what_is_wrong_and_how_bad(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["labels"]["severity"] in ("page", "ticket")
    promql_parser.parse_duration(rule.get("for", "1s"))


@EACH_RULE
def test_its_texts_name_labels_that_are_left(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert named <= kept_labels(rule["expr"])


@EACH_RULE
def test_its_runbook_is_a_section_of_the_page(rule: dict[str, Any]) -> None:
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    assert re.fullmatch(r"https://[\w.-]+/.*", page), "an alert is read where no relative link leads anywhere"
    titles = re.findall(r"^#+ (.+)$", (ROOT / "docs/operate.md").read_text(), re.MULTILINE)
    assert section in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_operators_rule_is_made_of_this_file() -> None:
    assert RULE.read_text() == prometheus_rule(ALERTS.read_text()), "run `make format`"


def test_one_command_moves_all_runbook_links() -> None:
    moved = yaml.safe_load(with_runbook(ALERTS.read_text(), "https://git.mine/operate.md"))
    links = {rule["annotations"]["runbook_url"] for group in moved["groups"] for rule in group["rules"]}
    assert {link.partition("#")[0] for link in links} == {"https://git.mine/operate.md"}
    assert len({link.partition("#")[2] for link in links}) > 1


def test_a_relative_link_gets_the_address_of_the_others() -> None:
    alerts = "runbook_url: docs/operate.md#new\nrunbook_url: https://git.mine/operate.md#old\n"
    assert with_runbook(alerts).splitlines()[0] == "runbook_url: https://git.mine/operate.md#new"


def test_prometheus_sends_alerts_to_the_alertmanagers_of_a_file() -> None:
    (configured,) = CONFIG["alerting"]["alertmanagers"]
    (found,) = configured["file_sd_configs"]
    assert [yaml.safe_load((FOLDER / name).read_text()) for name in found["files"]] == [[]]


def test_no_two_alerts_have_one_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_buffers_bound_is_the_settings_default() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "TidelogBufferFills"]
    assert str(Settings().buffer_max_bytes) in rule["expr"]


def test_prometheus_asks_every_service_under_the_jobs_that_rules_name() -> None:
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in CONFIG["scrape_configs"]}
    assert jobs["tidelog"] == [f"{name}:8080" for name in services() if name.startswith("broker-")]
    assert jobs["etcd"] == [f"{name}:2379" for name in services() if name.startswith("etcd-")]
    named = {job for rule in RULES for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert named <= set(jobs)


def test_prometheus_reads_the_rules() -> None:
    assert CONFIG["rule_files"] == ["alerts.yml"]
    assert "./infra/prometheus:/etc/prometheus:ro" in services()["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in services()["prometheus"]["command"]
