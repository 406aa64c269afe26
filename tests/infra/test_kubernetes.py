"""The Kubernetes manifests, built by kustomize, are valid by Kubernetes' own schemas, and fit the broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from tests.infra.manifests import EXAMPLE, Manifest, built, one

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.http.app import create_app
from tidelog.services.runtime import container_health
from tidelog.services.runtime.wiring import open_broker
from tidelog.services.settings.settings import Settings
from tidelog.services.settings.settings_sources import load_settings
from tidelog.storage.runtime import Runtime

VERSIONS = ("1.32", "1.37")
"""The oldest version with everything that is used, and the newest that the validator knows."""
FOREIGN = {"AlertmanagerConfig", "PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, whose schemas the validator does not have."""

COMPACTOR = "tidelog-compactor"
EACH_DEPLOYMENT = pytest.mark.parametrize("name", ["tidelog", COMPACTOR])
SPILL = "TIDELOG_ARCHIVER_SPILL_FOLDER"


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
    names = sorted((manifest["kind"], manifest["metadata"]["name"].partition("-")[2]) for manifest in built(EXAMPLE))
    assert [name for name in names if name[0] != "ConfigMap"] == [
        ("AlertmanagerConfig", ""),
        ("Deployment", ""),
        ("Deployment", "compactor"),
        ("Namespace", ""),
        ("NetworkPolicy", ""),
        ("NetworkPolicy", "compactor"),
        ("NetworkPolicy", "metadata-credentials"),
        ("PodDisruptionBudget", ""),
        ("PodMonitor", ""),
        ("PrometheusRule", ""),
        ("Service", ""),
        ("ServiceAccount", ""),
    ]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "Deployment"])
def test_selectors_find_the_pods(kind: str) -> None:
    spec = one(kind)["spec"]
    selector = spec.get("podSelector") or spec["selector"]
    wanted = selector.get("matchLabels", selector)
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert wanted
    assert wanted.items() <= labels.items()
    assert not wanted.items() <= one("Deployment", name=COMPACTOR)["spec"]["template"]["metadata"]["labels"].items()


def test_brokers_understand_their_variables() -> None:
    loaded = load_settings(config=None, environ=variables(), flags={}).settings
    assert loaded.etcd_endpoints == "https://etcd.etcd.svc:2379"
    assert (loaded.host, loaded.port) == ("0.0.0.0", pod()["ports"][0]["containerPort"])
    assert loaded.broker_id == "tidelog-5d9c-x7x2k"
    assert loaded.advertised_address == "http://10.0.0.7:8080"


def variables() -> Mapping[str, str]:
    """The environment of a broker, as the kubelet would set it."""
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


@EACH_DEPLOYMENT
def test_pods_keep_the_restricted_standard(name: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    security = pod(name)["securityContext"]
    assert pod_spec(name)["securityContext"]["runAsNonRoot"] is True
    assert pod_spec(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert one("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_no_object_holds_a_secret() -> None:
    assert not [manifest for manifest in built(EXAMPLE) if manifest["kind"] == "Secret"]
    assert not [name for name in one("ConfigMap")["data"] if "PASSWORD" in name or "SECRET" in name]


@EACH_DEPLOYMENT
def test_services_of_the_namespace_do_not_become_variables(name: str) -> None:
    assert pod_spec(name)["enableServiceLinks"] is False


@EACH_DEPLOYMENT
def test_spills_have_a_volume_with_room_for_large_segments_within_the_pods_limit(name: str) -> None:
    (mount,) = [mount for mount in pod(name)["volumeMounts"] if mount["mountPath"] == variables()[SPILL]]
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod_spec(name)["volumes"] if "emptyDir" in volume}
    sizes = {volume: _bytes(found["sizeLimit"]) for volume, found in volumes.items()}
    assert sizes[mount["name"]] >= 4 * TopicConfig().segment_bytes
    storage = {which: _bytes(pod(name)["resources"][which]["ephemeral-storage"]) for which in ("requests", "limits")}
    assert TopicConfig().segment_bytes < storage["requests"] < sum(sizes.values()) < storage["limits"]
    assert pod_spec(name)["securityContext"]["fsGroup"] == pod_spec(name)["securityContext"]["runAsUser"]


def test_upkeep_is_the_compactors_where_there_is_one() -> None:
    assert load_settings(environ=variables()).settings.archiver_upkeep is False
    assert "TIDELOG_ARCHIVER_UPKEEP" not in one("ConfigMap", "base")["data"]


def test_the_compactor_takes_its_arguments_and_its_probe_reads_the_file_that_it_renews() -> None:
    container = pod(COMPACTOR)
    assert container["args"][:2] == ["compactor", "--alive-file"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(container["args"][2]).parent) in mounted
    assert container["livenessProbe"]["exec"]["command"] == ["python", "-m", container_health.__name__]
    assert container["envFrom"] == pod()["envFrom"]
    assert container["image"] == pod()["image"]


def test_pods_reach_metadata_services_where_credentials_come_from_there() -> None:
    policy = one("NetworkPolicy", name="tidelog-metadata-credentials")["spec"]
    (names,) = policy["podSelector"]["matchExpressions"]
    deployments = {one("Deployment", name=name)["metadata"]["labels"][names["key"]] for name in ("tidelog", COMPACTOR)}
    assert set(names["values"]) == deployments
    (rule,) = policy["egress"]
    assert {"169.254.169.254/32", "169.254.170.23/32"} <= {to["ipBlock"]["cidr"] for to in rule["to"]}
    assert rule["ports"] == [{"port": 80}]
    assert policy["policyTypes"] == ["Egress"]


def test_alerts_carry_the_namespace_by_which_they_are_routed_and_every_severity_has_a_receiver() -> None:
    rules = [rule for group in one("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert {rule["labels"]["namespace"] for rule in rules} == {one("Namespace")["metadata"]["name"]}
    spec = one("AlertmanagerConfig")["spec"]
    routed = {route["receiver"]: route["matchers"] for route in spec["route"]["routes"]}
    assert routed == {"page": [{"name": "severity", "value": "page"}]}
    assert {rule["labels"]["severity"] for rule in rules} == {*routed, spec["route"]["receiver"]}
    assert {receiver["name"] for receiver in spec["receivers"]} == {"page", "ticket"}


def _bytes(quantity: str) -> int:
    """The bytes of a Kubernetes quantity, for the units in the manifests."""
    units = {"Mi": 2**20, "Gi": 2**30}
    return int(quantity[:-2]) * units[quantity[-2:]]


def pod_spec(name: str = "tidelog") -> Manifest:
    spec: Manifest = one("Deployment", name=name)["spec"]["template"]["spec"]
    return spec


def pod(name: str = "tidelog") -> Mapping[str, Any]:
    (container,) = pod_spec(name)["containers"]
    found: Mapping[str, Any] = container
    return found
