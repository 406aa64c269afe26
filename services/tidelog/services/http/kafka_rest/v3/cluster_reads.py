"""``GET /v3/clusters…``: reads of Confluent's REST interface v3: the cluster, its brokers, topics, partitions, configs
and groups, each with links to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import BrokerPlace, ClusterStatus
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.kafka_rest.broker_numbers import leader_numbers
from tidelog.services.http.kafka_rest.rest_answer import check_partition, partition_number, rest_answer, topic_of
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import JSON
from tidelog.services.http.kafka_rest.rest_routes import RestRoutes
from tidelog.services.http.kafka_rest.seen_address import SeenAddresses
from tidelog.services.http.service import Service

Object = Mapping[str, Any]
ALONE = "tidelog"
"""The id of the cluster of a broker alone, which has none."""
_ONE = "/v3/clusters/{cluster}"


class ClusterReads:
    """The calls that read the cluster."""

    def __init__(self, service: Service, addresses: SeenAddresses) -> None:
        self._broker = service.broker
        self._addresses = addresses

    def add_to(self, routes: RestRoutes) -> None:
        routes.add("GET", "/v3/clusters", self.clusters)
        routes.add("GET", _ONE, self.cluster)
        routes.add("GET", f"{_ONE}/brokers", self.brokers)
        routes.add("GET", f"{_ONE}/brokers/{{broker}}", self.one_broker)
        routes.add("GET", f"{_ONE}/topics", self.topics)
        routes.add("GET", f"{_ONE}/topics/{{topic}}", self.topic)
        routes.add("GET", f"{_ONE}/topics/{{topic}}/configs", self.configs)
        routes.add("GET", f"{_ONE}/topics/{{topic}}/partitions", self.partitions)
        routes.add("GET", f"{_ONE}/topics/{{topic}}/partitions/{{partition}}", self.partition)
        routes.add("GET", f"{_ONE}/consumer-groups", self.groups)

    async def clusters(self, request: Request) -> Response:
        here = self._here(request)
        return here.listed("KafkaClusterList", "/v3/clusters", [here.cluster_object()])

    async def cluster(self, request: Request) -> Response:
        return rest_answer(self._here(request).cluster_object(), JSON)

    async def brokers(self, request: Request) -> Response:
        here = self._here(request)
        brokers = [here.broker_object(place) for place in here.cluster.brokers]
        return here.listed("KafkaBrokerList", f"{here.path}/brokers", brokers)

    async def one_broker(self, request: Request) -> Response:
        here, wanted = self._here(request), request.path_params["broker"]
        for place in here.cluster.brokers:
            if str(place.node_id) == wanted:
                return rest_answer(here.broker_object(place), JSON)
        raise RestError(Code.NOT_FOUND, f"broker {wanted[:80]} cannot be found")

    async def topics(self, request: Request) -> Response:
        here = self._here(request)
        topics = [here.topic_object(topic) for topic in self._broker.topics(context_of(request))]
        return here.listed("KafkaTopicList", f"{here.path}/topics", topics)

    async def topic(self, request: Request) -> Response:
        here = self._here(request)
        return rest_answer(here.topic_object(await self._topic(request)), JSON)

    async def configs(self, request: Request) -> Response:
        here, topic = self._here(request), await self._topic(request)
        configs = [here.config_object(topic, name, value) for name, value in topic.config.as_kafka().items()]
        return here.listed("KafkaTopicConfigList", f"{here.path}/topics/{topic.name}/configs", configs)

    async def partitions(self, request: Request) -> Response:
        here, topic = self._here(request), await self._topic(request)
        partitions = [here.partition_object(topic, number) for number in range(topic.partition_count)]
        return here.listed("KafkaPartitionList", f"{here.path}/topics/{topic.name}/partitions", partitions)

    async def partition(self, request: Request) -> Response:
        here, topic = self._here(request), await self._topic(request)
        number = partition_number(request)
        check_partition(topic, number)
        return rest_answer(here.partition_object(topic, number), JSON)

    async def groups(self, request: Request) -> Response:
        here = self._here(request)
        page = await self._broker.groups.groups(context_of(request))
        groups = [here.group_object(listed.group, listed.kind) for listed in page.groups]
        return here.listed("KafkaConsumerGroupList", f"{here.path}/consumer-groups", groups)

    async def _topic(self, request: Request) -> Topic:
        name: str = request.path_params["topic"]
        try:
            return await topic_of(self._broker, context_of(request), name)
        except RestError as error:
            raise RestError(Code.UNKNOWN_TOPIC_PARTITION, str(error)) from None

    def _here(self, request: Request) -> _Here:
        cluster = self._broker.cluster(context_of(request))
        here = _Here(cluster, self._addresses.of(request))
        check_cluster(request, cluster)
        return here


def cluster_id_of(cluster: ClusterStatus) -> str:
    return cluster.cluster_id or ALONE


def check_cluster(request: Request, cluster: ClusterStatus) -> None:
    """Raises `RestError` if the path names another cluster."""
    named = request.path_params.get("cluster")
    if named not in (None, cluster_id_of(cluster)):
        raise RestError(Code.NOT_FOUND, f"Cluster {named[:80]} cannot be found. GET /v3/clusters lists the cluster")


class _Here:
    """Objects of the cluster, with links below `base`, where the client came in."""

    def __init__(self, cluster: ClusterStatus, base: str) -> None:
        self.cluster = cluster
        self.cluster_id = cluster_id_of(cluster)
        self.path = f"/v3/clusters/{self.cluster_id}"
        self._base = base
        self._leaders = leader_numbers(cluster)

    def listed(self, kind: str, path: str, objects: Sequence[Object]) -> Response:
        metadata = {"self": f"{self._base}{path}", "next": None}
        return rest_answer({"kind": kind, "metadata": metadata, "data": objects}, JSON)

    def cluster_object(self) -> Object:
        own = {name: self._link(f"{self.path}/{name.replace('_', '-')}") for name in ("brokers", "topics")}
        groups = self._link(f"{self.path}/consumer-groups")
        return {**self._head("KafkaCluster", self.path, ""), **own, "consumer_groups": groups, "controller": None}

    def broker_object(self, place: BrokerPlace) -> Object:
        number, address = place.node_id, urlsplit(place.address)
        path = f"{self.path}/brokers/{number}"
        head = self._head("KafkaBroker", path, f"broker={number}")
        return {**head, "broker_id": number, "host": address.hostname, "port": address.port, "rack": place.zone or None}

    def topic_object(self, topic: Topic) -> Object:
        path = f"{self.path}/topics/{topic.name}"
        return {
            **self._head("KafkaTopic", path, f"topic={topic.name}"),
            "topic_name": topic.name,
            "is_internal": False,
            "replication_factor": 1,
            "partitions_count": topic.partition_count,
            "partitions": self._link(f"{path}/partitions"),
            "configs": self._link(f"{path}/configs"),
        }

    def config_object(self, topic: Topic, name: str, value: str) -> Object:
        path = f"{self.path}/topics/{topic.name}/configs/{name}"
        head = self._head("KafkaTopicConfig", path, f"topic={topic.name}/config={name}")
        return {**head, "topic_name": topic.name, "name": name, "value": value, "is_sensitive": False}

    def partition_object(self, topic: Topic, number: int) -> Object:
        path = f"{self.path}/topics/{topic.name}/partitions/{number}"
        leader = self._leaders.get(topic.shards[number])
        broker = None if leader is None else self._link(f"{self.path}/brokers/{leader}")
        head = self._head("KafkaPartition", path, f"topic={topic.name}/partition={number}")
        return {**head, "topic_name": topic.name, "partition_id": number, "leader": broker}

    def group_object(self, group: str, kind: str) -> Object:
        path = f"{self.path}/consumer-groups/{group}"
        head = self._head("KafkaConsumerGroup", path, f"consumer-group={group}")
        return {**head, "consumer_group_id": group, "is_simple": not kind}

    def _head(self, kind: str, path: str, name: str) -> dict[str, Any]:
        resource = f"crn:///kafka={self.cluster_id}" + (f"/{name}" if name else "")
        metadata = {"self": f"{self._base}{path}", "resource_name": resource}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id}

    def _link(self, path: str) -> Object:
        return {"related": f"{self._base}{path}"}
