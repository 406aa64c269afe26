"""The Kubernetes manifests: what kustomize makes of them is valid by Kubernetes' own schemas, and fits the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest
from tests.infra.manifests import EXAMPLE, Manifest, built, one

from tidelog.services.http.app import create_app
from tidelog.services.settings import Settings
from tidelog.services.settings_sources import load_settings
from tidelog.services.wiring import open_broker
from tidelog.storage.runtime import Runtime

VERSIONS = ("1.32", "1.37")
"""The oldest that has all that is used, and the newest that the validator knows."""
FOREIGN = {"PodMonitor"}
"""Of the Prometheus operator, whose schemas the validator does not have."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", ["base", EXAMPLE])
def test_every_object_is_valid(folder: str, version: str) -> None:
    for manifest in built(folder):
        if manifest["kind"] not in FOREIGN:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_validator_would_see_a_mistake() -> None:
    wrong = {**one("Service"), "spec": {**one("Service")["spec"], "selektor": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="selektor"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_example_has_what_the_folder_promises() -> None:
    kinds = sorted(manifest["kind"] for manifest in built(EXAMPLE))
    assert kinds == [
        "ConfigMap",
        "Deployment",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
        "Service",
        "ServiceAccount",
    ]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "Deployment"])
def test_selectors_find_the_pods(kind: str) -> None:
    spec = one(kind)["spec"]
    selector = spec.get("podSelector") or spec["selector"]
    wanted = selector.get("matchLabels", selector)
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert wanted
    assert wanted.items() <= labels.items()


def test_brokers_understand_their_variables() -> None:
    loaded = load_settings(config=None, environ=variables(), flags={}).settings
    assert loaded.etcd_endpoints == "https://etcd.etcd.svc:2379"
    assert (loaded.host, loaded.port) == ("0.0.0.0", pod()["ports"][0]["containerPort"])
    assert loaded.broker_id == "tidelog-5d9c-x7x2k"
    assert loaded.advertised_address == "http://10.0.0.7:8080"


def variables() -> Mapping[str, str]:
    """A broker's environment, as the kubelet would make it."""
    config = one("ConfigMap")
    assert pod()["envFrom"][0]["configMapRef"]["name"] == config["metadata"]["name"]
    fields = {"metadata.name": "tidelog-5d9c-x7x2k", "status.podIP": "10.0.0.7"}
    made: dict[str, str] = dict(config["data"])
    for variable in pod()["env"]:
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = fields[source] if source else variable["value"]
        made[variable["name"]] = value.replace("$(POD_IP)", made.get("POD_IP", ""))
    return {name: value for name, value in made.items() if name.startswith("TIDELOG_")}


def test_a_broker_has_the_time_to_stop() -> None:
    shutdown_s = int(variables()["TIDELOG_SHUTDOWN_TIMEOUT_MS"]) / 1000
    before_s = pod()["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod_spec()["terminationGracePeriodSeconds"] >= before_s + shutdown_s + 5


def test_a_rollout_waits_until_the_new_broker_has_its_shards() -> None:
    assert one("Deployment")["spec"]["minReadySeconds"] * 1000 > Settings().rebalance_delay_ms
    assert one("Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


async def test_probes_ask_what_brokers_answer() -> None:
    broker = open_broker(Settings(store="memory:"), Runtime())
    known = {getattr(route, "path", "") for route in create_app(broker, Settings(), Runtime()).routes}
    paths = {name: pod()[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(paths.values()) <= known
    assert one("PodMonitor")["spec"]["podMetricsEndpoints"][0]["path"] in known
    await broker.aclose()


def test_pods_keep_the_restricted_standard() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    security = pod()["securityContext"]
    assert pod_spec()["securityContext"]["runAsNonRoot"] is True
    assert pod_spec()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert one("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_no_object_holds_a_secret() -> None:
    assert not [manifest for manifest in built(EXAMPLE) if manifest["kind"] == "Secret"]
    assert not [name for name in one("ConfigMap")["data"] if "PASSWORD" in name or "SECRET" in name]


def pod_spec() -> Manifest:
    spec: Manifest = one("Deployment")["spec"]["template"]["spec"]
    return spec


def pod() -> Mapping[str, Any]:
    (container,) = pod_spec()["containers"]
    found: Mapping[str, Any] = container
    return found
