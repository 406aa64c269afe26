"""`docker-compose.yml` runs the same programs as `make cluster`, with the same arguments and variables.

So a change to only one of them fails here, and results with processes on this machine also hold for containers.
"""

from __future__ import annotations

import pytest
from infra.cluster.topology import Address, Program, Secrets, Service, Shape, address_names, services
from tests.infra import compose_file

SHAPE = Shape()
PORTS = {"minio": 9000, "minio-console": 9001, "etcd": 2379, "etcd-peer": 2380, "broker": 8080, "broker-kafka": 9092}
COMMANDS = {Program.MINIO: (), Program.ETCD: ("/usr/local/bin/etcd",), Program.BROKER: ()}
"""The words before the arguments; MinIO's image and ours have their program as the entry point."""


def in_containers() -> tuple[Service, ...]:
    """The table with a container's addresses: each service listens on all addresses and is reached by its name."""
    addresses = {name: _address(name) for name in address_names(SHAPE)}
    variables = compose_file.VARIABLES
    secrets = Secrets(variables["S3_ACCESS_KEY_ID"], variables["S3_SECRET_ACCESS_KEY"])
    return services(SHAPE, addresses, secrets, data_folder="/data")


def _address(name: str) -> Address:
    kind = "-".join(part for part in name.split("-") if not part.isdigit())
    host = name.removesuffix("-peer").removesuffix("-console").removesuffix("-kafka")
    return Address("0.0.0.0", host, PORTS[kind])


@pytest.mark.parametrize("wanted", in_containers(), ids=lambda service: service.name)
def test_a_service_has_the_tables_arguments_and_variables(wanted: Service) -> None:
    found = compose_file.services()[wanted.name]
    assert tuple(found["command"]) == COMMANDS[wanted.program] + wanted.arguments
    assert found["environment"] == wanted.environment


def test_there_is_no_service_of_these_kinds_that_the_table_does_not_know() -> None:
    tables = {service.name for service in in_containers()}
    around = {"bucket", "balancer", "prometheus", "grafana"}
    assert set(compose_file.services()) == tables | around


@pytest.mark.parametrize("wanted", in_containers(), ids=lambda service: service.name)
def test_a_services_data_lie_on_a_volume_of_its_own(wanted: Service) -> None:
    mounted = compose_file.services()[wanted.name].get("volumes", [])
    spill = f"{wanted.name}-spill:{compose_file.SPILL_FOLDER}"
    assert mounted == ([spill] if wanted.program is Program.BROKER else [f"{wanted.name}:/data"])


def test_the_bucket_that_is_made_is_the_one_that_brokers_use() -> None:
    bucket = compose_file.services()["bucket"]
    store = compose_file.services()["broker-1"]["environment"]["TIDELOG_STORE"]
    assert f"mb --ignore-existing store/{store.removeprefix('s3://').partition('/')[0]}\n" in bucket["command"][0]
    assert bucket["image"] == compose_file.services()["minio"]["image"]
