"""The services of a cluster: one table for `make cluster`, the chaos tests and the compose file.

    minio                   the bucket
    etcd-1 .. etcd-3        the key-value store
    broker-1 .. broker-3    Tidelog

Each service is a program, its arguments and its environment. The environment is its whole configuration, so a service
runs alike as a process and in a container. `tests/infra/test_topology.py` compares `docker-compose.yml` with this
table. Only addresses and secrets differ; they are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

BUCKET = "tidelog"
REGION = "us-east-1"
CLUSTER_NAME = "main"
BALANCER = "balancer"
"""The name of the load balancer, if there is one, in the containers' network."""
STORE = f"s3://{BUCKET}/{CLUSTER_NAME}"


class Program(Enum):
    """The program of a service."""

    MINIO = "minio"
    ETCD = "etcd"
    BROKER = "tidelog"


@dataclass(frozen=True)
class Shape:
    """The number of each. Without etcd there is one broker, which leads all shards. Without MinIO the bucket is a
    folder that the brokers share."""

    brokers: int = 3
    etcd_nodes: int = 3
    minio: bool = True

    def __post_init__(self) -> None:
        if self.brokers < 1 or (self.etcd_nodes == 0 and self.brokers != 1):
            raise ValueError("several brokers need etcd")

    @property
    def broker_names(self) -> tuple[str, ...]:
        return tuple(f"broker-{n}" for n in range(1, self.brokers + 1))

    @property
    def etcd_names(self) -> tuple[str, ...]:
        return tuple(f"etcd-{n}" for n in range(1, self.etcd_nodes + 1))


@dataclass(frozen=True)
class Address:
    """`listen_host`: the address that the service binds. `host`: the name under which others reach it."""

    listen_host: str
    host: str
    port: int

    @property
    def reached(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def listened(self) -> str:
        return f"{self.listen_host}:{self.port}"


@dataclass(frozen=True)
class Secrets:
    """The bucket's credentials."""

    access_key_id: str
    secret_access_key: str


@dataclass(frozen=True)
class Service:
    """One process. `health_path` returns 200 when the service accepts requests."""

    name: str
    program: Program
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    address: Address
    health_path: str


Addresses = Mapping[str, Address]
"""The address of each service by name; etcd nodes reach each other as ``etcd-1-peer``."""

Route = Callable[[str, str], str]
"""``route(viewer, target)``: the ``host:port`` at which `viewer` reaches `target`; the viewer ``peers`` means the other
brokers, and ``clients`` clients of Kafka. Tests insert their proxies here."""


def address_names(shape: Shape) -> tuple[str, ...]:
    """The names that `services` needs addresses for."""
    peers = (f"{name}-peer" for name in shape.etcd_names)
    minio = ("minio", "minio-console") if shape.minio else ()
    kafka = (kafka_name(name) for name in shape.broker_names)
    return (*minio, *shape.etcd_names, *peers, *shape.broker_names, *kafka)


def kafka_name(broker: str) -> str:
    """The name of the address at which `broker` serves clients of Kafka's protocol."""
    return f"{broker}-kafka"


def services(
    shape: Shape,
    addresses: Addresses,
    secrets: Secrets,
    *,
    data_folder: str = "/data",
    route: Route | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[Service, ...]:
    """All services of the cluster in starting order. `settings`: more variables for every broker."""
    way = route or (lambda _, target: addresses[target].reached)
    bucket = {} if shape.minio else {"TIDELOG_STORE": folder_store(data_folder)}
    further = {**bucket, **(settings or {})}
    return (
        *((_minio(addresses, secrets, data_folder),) if shape.minio else ()),
        *(_etcd(name, shape, addresses, data_folder) for name in shape.etcd_names),
        *(_broker(name, shape, addresses, secrets, way, further) for name in shape.broker_names),
    )


def folder_store(data_folder: str) -> str:
    """The store of a cluster without MinIO."""
    return f"file:{data_folder}/bucket"


def _minio(addresses: Addresses, secrets: Secrets, data_folder: str) -> Service:
    address = addresses["minio"]
    console = addresses["minio-console"].listened
    return Service(
        name="minio",
        program=Program.MINIO,
        arguments=("server", "--address", address.listened, "--console-address", console, f"{data_folder}/minio"),
        environment={
            "MINIO_ROOT_USER": secrets.access_key_id,
            "MINIO_ROOT_PASSWORD": secrets.secret_access_key,
            "MINIO_UPDATE": "off",
        },
        address=address,
        health_path="/minio/health/ready",
    )


def _etcd(name: str, shape: Shape, addresses: Addresses, data_folder: str) -> Service:
    client, peer = addresses[name], addresses[f"{name}-peer"]
    members = (f"{other}=http://{addresses[f'{other}-peer'].reached}" for other in shape.etcd_names)
    return Service(
        name=name,
        program=Program.ETCD,
        arguments=(),
        environment={
            "ETCD_NAME": name,
            "ETCD_DATA_DIR": f"{data_folder}/{name}",
            "ETCD_LISTEN_CLIENT_URLS": f"http://{client.listened}",
            "ETCD_ADVERTISE_CLIENT_URLS": f"http://{client.reached}",
            "ETCD_LISTEN_PEER_URLS": f"http://{peer.listened}",
            "ETCD_INITIAL_ADVERTISE_PEER_URLS": f"http://{peer.reached}",
            "ETCD_INITIAL_CLUSTER": ",".join(members),
            "ETCD_INITIAL_CLUSTER_TOKEN": f"tidelog-{CLUSTER_NAME}",
            "ETCD_INITIAL_CLUSTER_STATE": "new",
            "ETCD_AUTO_COMPACTION_MODE": "periodic",
            "ETCD_AUTO_COMPACTION_RETENTION": "5m",
        },
        address=client,
        health_path="/health",
    )


def _broker(
    name: str, shape: Shape, addresses: Addresses, secrets: Secrets, route: Route, settings: Mapping[str, str]
) -> Service:
    address, kafka = addresses[name], addresses[kafka_name(name)]
    environment = {
        "TIDELOG_STORE": STORE,
        "TIDELOG_HOST": address.listen_host,
        "TIDELOG_PORT": str(address.port),
        "TIDELOG_LISTENERS": f"PLAINTEXT://{kafka.listened}",
        "TIDELOG_ADVERTISED_LISTENERS": f"PLAINTEXT://{route('clients', kafka_name(name))}",
        "TIDELOG_LOG_FORMAT": "json",
    }
    if shape.minio:
        environment |= {
            "AWS_ENDPOINT_URL_S3": f"http://{route(name, 'minio')}",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": secrets.access_key_id,
            "AWS_SECRET_ACCESS_KEY": secrets.secret_access_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    if shape.etcd_nodes:
        endpoints = ",".join(f"http://{route(name, etcd)}" for etcd in shape.etcd_names)
        environment |= {
            "TIDELOG_CLUSTER_NAME": CLUSTER_NAME,
            "TIDELOG_ETCD_ENDPOINTS": endpoints,
            "TIDELOG_BROKER_ID": name,
            "TIDELOG_ADVERTISED_ADDRESS": f"http://{route('peers', name)}",
            "TIDELOG_HTTP_HOSTS_ALLOWED": BALANCER,
        }
    return Service(name, Program.BROKER, ("serve",), {**environment, **settings}, address, "/readyz")
