"""The table of a cluster's services."""

from __future__ import annotations

import pytest
from infra.cluster.topology import Address, Program, Secrets, Service, Shape, address_names, services

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
