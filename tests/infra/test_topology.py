"""The table of a cluster's services."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from infra.cluster.topology import Address, Program, Secrets, Service, Shape, address_names, services

ROOT = Path(__file__).parents[2]
SECRETS = Secrets("user", "secret")


def table(shape: Shape, **settings: str) -> dict[str, Service]:
    addresses = {name: Address("0.0.0.0", name, 8080) for name in address_names(shape)}
    return {service.name: service for service in services(shape, addresses, SECRETS, settings=settings)}


def test_a_cluster_is_a_bucket_three_nodes_of_etcd_and_three_brokers() -> None:
    assert list(table(Shape())) == ["minio", "etcd-1", "etcd-2", "etcd-3", "broker-1", "broker-2", "broker-3"]


def test_brokers_differ_in_nothing_but_who_they_are() -> None:
    brokers = [service for service in table(Shape()).values() if service.program is Program.BROKER]
    environments = [dict(broker.environment) for broker in brokers]
    assert [environment.pop("TIDELOG_BROKER_ID") for environment in environments] == [b.name for b in brokers]
    own = [environment.pop("TIDELOG_ADVERTISED_ADDRESS") for environment in environments]
    assert own == [f"http://{broker.name}:8080" for broker in brokers]
    assert environments[0] == environments[1] == environments[2]


def test_every_node_of_etcd_knows_all_of_them() -> None:
    nodes = [service for service in table(Shape()).values() if service.program is Program.ETCD]
    assert len({node.environment["ETCD_INITIAL_CLUSTER"] for node in nodes}) == 1
    assert nodes[0].environment["ETCD_INITIAL_CLUSTER"].count("http://") == 3


def test_a_broker_alone_hears_nothing_of_etcd() -> None:
    alone = table(Shape(1, 0))
    assert list(alone) == ["minio", "broker-1"]
    assert not any("ETCD" in name or "BROKER_ID" in name for name in alone["broker-1"].environment)


def test_several_brokers_need_etcd() -> None:
    with pytest.raises(ValueError, match="need etcd"):
        Shape(2, 0)


def test_settings_of_the_caller_reach_every_broker() -> None:
    services_by_name = table(Shape(), TIDELOG_LEASE_TTL_MS="2000")
    assert all(services_by_name[name].environment["TIDELOG_LEASE_TTL_MS"] == "2000" for name in Shape().broker_names)


def composed() -> dict[str, Any]:
    """The services of `docker-compose.yml` that have a place in the table."""
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return {name: service for name, service in file["services"].items() if name in IN_CONTAINERS}


PORTS = {"minio": 9000, "minio-console": 9001, **dict.fromkeys(Shape().etcd_names, 2379)}
PORTS |= {f"{name}-peer": 2380 for name in Shape().etcd_names} | dict.fromkeys(Shape().broker_names, 8080)
IN_CONTAINERS = {
    service.name: service
    for service in services(
        Shape(),
        {name: Address("0.0.0.0", name.removesuffix("-peer"), port) for name, port in PORTS.items()},
        Secrets("${S3_ACCESS_KEY_ID}", "${S3_SECRET_ACCESS_KEY}"),
    )
}
"""The table, with the addresses that containers have."""


def test_the_compose_file_has_the_services_of_the_table() -> None:
    assert set(composed()) == set(IN_CONTAINERS)


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_the_compose_file_starts_a_service_as_the_table_does(name: str) -> None:
    wanted, service = IN_CONTAINERS[name], composed()[name]
    environment = {key: re.sub(r"\$\{(\w+):\?[^}]*}", r"${\1}", value) for key, value in service["environment"].items()}
    assert environment == wanted.environment
    if wanted.program is not Program.ETCD:  # whose image needs its program named, and takes no arguments
        assert tuple(service["command"]) == wanted.arguments
