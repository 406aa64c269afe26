"""A record is the same over every interface, whichever one it came in by: key, value, headers and time, byte for
byte."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from tests.http.requests import ARROW, arrow_stream, read_arrow
from tests.kafka.conftest import SETTINGS, KafkaServed
from tests.kafka.records_client import fetch, produce
from tests.kafka.sent_batches import received, sent
from tests.record_batches import reference

from tidelog.services.broker.api.request_context import BROKER_ITSELF
from tidelog.services.http.app import create_app
from tidelog.services.settings.settings import Settings
from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.storage.runtime import Runtime

TOPIC = "events"
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Same:
    """One record."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RECORDS = (
    Same(START_MS, b"k", b"v", (("h", b"x"),)),
    Same(START_MS + 1, None, b"no key"),
    Same(START_MS + 2, b"no value", None),
    Same(START_MS + 3, None, None),
    Same(START_MS + 4, b"", b"", (("", b""),)),
    Same(START_MS - 5, b"\xff\x00\xfe", b"\x80" * 300, (("twice", b"\x00"), ("twice", None), ("ü", b"\xff"))),
    Same(1, b"begin of time", "größer".encode(), (("none", None),)),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(SETTINGS, store=f"file:{tmp_path}/bucket")


@pytest.fixture
async def http(served: KafkaServed) -> AsyncIterator[httpx.AsyncClient]:
    await served.broker.create_topic(BROKER_ITSELF, TOPIC, 1, {"retention.ms": -1})
    transport = httpx.ASGITransport(create_app(served.broker, served.settings, Runtime()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@dataclass(frozen=True)
class Interfaces:
    """All ways into and out of the log."""

    served: KafkaServed
    http: httpx.AsyncClient
    bucket: Path

    async def by_json(self) -> None:
        body = {"records": [_json(each) for each in RECORDS]}
        (await self.http.post(f"/v1/topics/{TOPIC}/partitions/0/records", json=body)).raise_for_status()

    async def by_arrow(self) -> None:
        columns = {
            "timestamp": [each.timestamp_ms for each in RECORDS],
            "key": [each.key for each in RECORDS],
            "value": [each.value for each in RECORDS],
            "headers": [[{"key": key, "value": value} for key, value in each.headers] for each in RECORDS],
        }
        table = pa.table({name: pa.array(columns[name], DRAFT_SCHEMA.field(name).type) for name in DRAFT_SCHEMA.names})
        body, media = arrow_stream(table), {"Content-Type": ARROW}
        answer = await self.http.post(f"/v1/topics/{TOPIC}/partitions/0/records", content=body, headers=media)
        answer.raise_for_status()

    async def by_kafka(self) -> None:
        batch = [
            reference.Record(at, each.timestamp_ms, each.key, each.value, each.headers)
            for at, each in enumerate(RECORDS)
        ]
        client = await self.served.connect()
        assert (await produce(client, TOPIC, sent(batch))).error_code == 0
        await client.aclose()

    async def by_librdkafka(self) -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.served.port}", "compression.type": "lz4"})
        for each in RECORDS:
            told = {"timestamp": each.timestamp_ms, "headers": list(each.headers)}
            producer.produce(TOPIC, each.value, each.key, 0, **told)
        assert await asyncio.to_thread(producer.flush, 20) == 0

    async def of_arrow(self) -> Sequence[Same]:
        path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0"
        answer = await self.http.get(path, headers={"Accept": ARROW})
        return [_of_row(row) for row in read_arrow(answer.content).to_pylist()]

    async def of_json(self) -> Sequence[Same]:
        path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0"
        answer = await self.http.get(path, headers={"Accept": "application/json"})
        return [_of_json(record) for record in answer.json()["records"]]

    async def of_kafka(self) -> Sequence[Same]:
        client = await self.served.connect()
        fetched = await fetch(client, TOPIC, 0)
        await client.aclose()
        found = received(fetched.records)
        assert [each.offset_delta for each in found] == list(range(len(RECORDS)))
        return [Same(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found]

    async def of_aiokafka(self) -> Sequence[Same]:
        consumer = AIOKafkaConsumer(bootstrap_servers=f"127.0.0.1:{self.served.port}")
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.seek_to_beginning()
        found = [await consumer.getone() for _ in RECORDS]
        await consumer.stop()
        return [Same(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found]

    async def of_duckdb(self) -> Sequence[Same]:
        """What is archived. DuckDB has the session's zone for times."""
        await self.served.broker.archive_now()
        query = 'SELECT epoch_ms(timestamp) AS ms, * FROM read_parquet($files) ORDER BY "offset"'
        table = duckdb.execute(query, {"files": f"{self.bucket}/topics/{TOPIC}/*/*.parquet"}).to_arrow_table()
        return [replace(_of_row(row), timestamp_ms=row["ms"]) for row in table.drop_columns("timestamp").to_pylist()]


Way = Callable[[Interfaces], Awaitable[Any]]
WAYS_IN: Sequence[Way] = (Interfaces.by_json, Interfaces.by_arrow, Interfaces.by_kafka, Interfaces.by_librdkafka)
WAYS_OUT: Sequence[Way] = (
    Interfaces.of_arrow,
    Interfaces.of_json,
    Interfaces.of_kafka,
    Interfaces.of_aiokafka,
    Interfaces.of_duckdb,
    Interfaces.of_kafka,  # now from the archive
)


@pytest.mark.parametrize("way_in", WAYS_IN, ids=lambda way: way.__name__)
async def test_every_way_out_has_the_records_of_every_way_in(
    served: KafkaServed, http: httpx.AsyncClient, tmp_path: Path, way_in: Way
) -> None:
    interfaces = Interfaces(served, http, tmp_path / "bucket")
    await way_in(interfaces)
    for way_out in WAYS_OUT:
        assert tuple(await way_out(interfaces)) == RECORDS, way_out.__name__


def _json(each: Same) -> dict[str, object]:
    headers = [{"key": key, "value": _told(value)} for key, value in each.headers]
    return {
        "timestamp": each.timestamp_ms,
        "key": _told(each.key),
        "value": _told(each.value),
        **({"headers": headers} if headers else {}),
    }


def _told(content: bytes | None) -> object:
    return None if content is None else {"base64": base64.b64encode(content).decode()}


def _of_json(record: dict[str, Any]) -> Same:
    headers = tuple((each["key"], _untold(each["value"])) for each in record["headers"] or ())
    return Same(record["timestamp"], _untold(record["key"]), _untold(record["value"]), headers)


def _untold(told: Any) -> bytes | None:
    if isinstance(told, dict):
        return base64.b64decode(told["base64"])
    return None if told is None else str(told).encode()


def _of_row(row: dict[str, Any]) -> Same:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    return Same(_ms(row.get("timestamp")), row["key"], row["value"], headers)


def _ms(moment: Any) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)
