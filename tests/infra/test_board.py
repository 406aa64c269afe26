"""Grafana's board: every metric and label in it is exported, and the board is where Grafana looks for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.components.etcd_server import EtcdServer
from tests.infra import exported
from tests.infra.compose_file import ROOT, services
from tests.infra.promql import kept_labels, unknown

FOLDER = ROOT / "infra/grafana"
BOARD: dict[str, Any] = json.loads((FOLDER / "boards/tidelog.json").read_text())
VARIABLE_QUERY = re.compile(r"label_values\((\w+), (\w+)\)")


def targets() -> Iterator[tuple[str, str]]:
    """Expression and legend of every line and number on the board."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]


async def test_every_metric_on_it_is_exported(etcd: EtcdServer) -> None:
    known = {**await exported.of_a_broker_in_a_cluster(), **await exported.of_etcd(etcd)}
    assert [found for expression, _ in targets() for found in unknown(expression, known)] == []


async def test_a_broker_alone_fills_it_too(etcd: EtcdServer) -> None:
    known = {**await exported.of_a_broker_alone(), **await exported.of_etcd(etcd)}
    assert [found for expression, _ in targets() for found in unknown(expression, known)] == []


async def test_every_metric_of_a_broker_is_on_it_or_raises_an_alert() -> None:
    """A metric is exported to be looked at."""
    text = json.dumps(BOARD) + (ROOT / "infra/prometheus/alerts.yml").read_text()
    known = [name for name in await exported.of_a_broker_in_a_cluster() if name.startswith("tidelog_")]
    skipped = ("_bucket", "_sum", "_count", "_created")
    missing = [name for name in known if not name.endswith(skipped) and not re.search(rf"{name}\b", text)]
    assert missing == []


def test_legends_name_labels_that_are_left() -> None:
    for expression, legend in targets():
        assert set(re.findall(r"{{(\w+)}}", legend)) <= kept_labels(expression), expression


async def test_variables_list_labels_that_are_exported() -> None:
    known = await exported.of_a_broker_in_a_cluster()
    for variable in BOARD["templating"]["list"]:
        query = VARIABLE_QUERY.fullmatch(variable["query"]["query"])
        assert query is not None
        assert query[2] in known[query[1]] | {"instance"}


def test_a_metric_that_nobody_exports_would_be_seen() -> None:
    known = {"tidelog_shards_led": frozenset[str]()}
    assert unknown('rate(tidelog_shards_lost{job="tidelog"}[1m])', known) == ["nobody exports tidelog_shards_lost"]
    assert unknown("sum by (shard) (tidelog_shards_led)", known) == ["tidelog_shards_led has no label shard"]
    with pytest.raises(ValueError, match="parenthesis"):
        unknown("sum(tidelog_shards_led", known)


def test_panels_do_not_cover_each_other() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert cells.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_grafana_finds_the_board_and_the_board_its_source() -> None:
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/tidelog.yml").read_text())["providers"]
    grafana = services()["grafana"]
    assert f"./infra/grafana/boards:{provider['options']['path']}:ro" in grafana["volumes"]
    assert "./infra/grafana/provisioning:/etc/grafana/provisioning:ro" in grafana["volumes"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"] if "targets" in panel} == {source["uid"]}
