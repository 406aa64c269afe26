"""Converts `prometheus/alerts.yml` into a PrometheusRule for the Prometheus operator, and sets the runbook links.

    python -m infra.alert_rules                                              write the PrometheusRule
    python -m infra.alert_rules --runbook https://git.mine/docs/operate.md   also link all alerts to that page
    python -m infra.alert_rules --check                                      write nothing; exit code 1 if they differ

`make format` runs the first and `make check` the last. An alert with a relative link gets the address of the others.
Every alert also gets a label `namespace`, because the operator applies an AlertmanagerConfig only to alerts of its own
namespace; the overlay sets the real namespace.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
ALERTS = FOLDER / "prometheus/alerts.yml"
RULE = FOLDER / "kubernetes/components/monitoring/prometheus-rule.yaml"
HEADER = "# Made from infra/prometheus/alerts.yml by `python -m infra.alert_rules`; change it there.\n"
NAMESPACE = "tidelog"


def prometheus_rule(alerts: str) -> str:
    """The manifest that holds `alerts`, a rule file of Prometheus."""
    groups = [
        {**group, "rules": [_labelled(rule) for rule in group["rules"]]} for group in yaml.safe_load(alerts)["groups"]
    ]
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tidelog", "labels": {"app.kubernetes.io/name": "tidelog"}},
        "spec": {"groups": groups},
    }
    return HEADER + yaml.safe_dump(manifest, sort_keys=False, width=1_000)


def with_runbook(alerts: str, url: str = "") -> str:
    """`alerts` with links to the sections of the page at `url`, or of the first absolute link's page if `url` is
    empty."""
    page = url or next(iter(re.findall(r"runbook_url: (https://[^\s#]+)", alerts)), "")
    return re.sub(r"(runbook_url: )[^\s#]+", lambda found: f"{found[1]}{page}", alerts) if page else alerts


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.alert_rules", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runbook", metavar="URL", help="the absolute address of your copy of docs/operate.md")
    parser.add_argument("--check", action="store_true", help="only report whether the files are up to date")
    chosen = parser.parse_args(arguments)
    alerts = with_runbook(ALERTS.read_text(), chosen.runbook or "")
    made = {ALERTS: alerts, RULE: prometheus_rule(alerts)}
    old = [file for file, text in made.items() if file.read_text() != text]
    if chosen.check:
        for file in old:
            print(f"{file} is not up to date: run `python -m infra.alert_rules`", file=sys.stderr)
        return 1 if old else 0
    for file in old:
        file.write_text(made[file])
    return 0


def _labelled(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**rule, "labels": {**rule["labels"], "namespace": NAMESPACE}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
