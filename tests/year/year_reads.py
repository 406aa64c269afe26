"""Reads of a cold archive, one at a time: the requests, the time and the correctness of each."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

from tidelog.client import Admin, PartitionDescription

ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Reads:
    """`count` reads of one kind, each sent to a broker. Requests are those of one read to the store."""

    what: str
    count: int
    p50_ms: float
    p90_ms: float
    max_ms: float
    requests_mean: float
    requests_max: int
    wrong: Sequence[str]


class ColdReader:
    """Reads records of `topic` from `broker`."""

    def __init__(self, broker: str, topic: str, seed: int) -> None:
        self._topic = topic
        self._random = random.Random(seed)
        self._http = httpx.Client(base_url=broker, timeout=60, trust_env=False, headers={"accept": ARROW})
        with Admin(broker) as admin:
            self._partitions = [found for found in admin.topic(topic).partitions if found.cold_end > 0]
            log = admin.topic_log(topic)
        held = {number: [segment for segment, _ in spans] for number, spans in log.spans().items()}
        self._times = {
            partition: (min(s.min_timestamp for s in segments), max(s.max_timestamp for s in segments))
            for partition, segments in held.items()
        }
        self._partitions = [found for found in self._partitions if found.partition in self._times]

    def by_offset(self, count: int) -> Reads:
        """Reads at random offsets."""
        return self._measured("an offset", count, self._one_offset)

    def by_time(self, count: int) -> Reads:
        """Reads at random times: the offset of the first record at or after each, and that record."""
        return self._measured("a time", count, self._one_time)

    def close(self) -> None:
        self._http.close()

    def _one_offset(self) -> str:
        place = self._random.choice(self._partitions)
        offset = self._random.randrange(place.log_start_offset, place.cold_end)
        first = self._record_at(place, offset)
        return "" if first["offset"] == offset else f"{place.partition}/{offset} gave {first['offset']}"

    def _one_time(self) -> str:
        place = self._random.choice(self._partitions)
        low_ms, high_ms = self._times[place.partition]
        at_ms = self._random.randrange(low_ms, high_ms)
        answer = self._http.get(
            f"/v1/topics/{self._topic}/partitions/{place.partition}/offset",
            params={"at": f"@{at_ms}"},
            headers={"accept": "application/json"},
        )
        offset = answer.raise_for_status().json()["offset"]
        first = self._record_at(place, offset)
        right = first["offset"] == offset and first["timestamp"] >= at_ms
        return "" if right else f"{place.partition}@{at_ms} gave {first}"

    def _record_at(self, place: PartitionDescription, offset: int) -> Mapping[str, int]:
        answer = self._http.get(
            f"/v1/topics/{self._topic}/partitions/{place.partition}/records",
            params={"offset": offset, "max_records": 1},
        )
        with pa.ipc.open_stream(answer.raise_for_status().content) as reader:
            record = reader.read_all().slice(0, 1)
        if not record.num_rows:
            return {"offset": -1, "timestamp": -1}
        return {name: record[name].cast(pa.int64())[0].as_py() for name in ("offset", "timestamp")}

    def _measured(self, what: str, count: int, read: Callable[[], str]) -> Reads:
        took_ms: list[float] = []
        requests: list[int] = []
        wrong: list[str] = []
        for _ in range(count):
            before, began_s = store_requests(self._http), time.monotonic()
            fault = read()
            took_ms.append((time.monotonic() - began_s) * 1_000)
            requests.append(store_requests(self._http) - before)
            wrong += [fault] if fault else []
        deciles = statistics.quantiles(took_ms, n=10)
        mean = statistics.mean(requests)
        return Reads(what, count, statistics.median(took_ms), deciles[8], max(took_ms), mean, max(requests), wrong)


def store_requests(http: httpx.Client) -> int:
    """The requests so far by which the broker read segments and manifests. Creates are its archiver's."""
    families = text_string_to_metric_families(http.get("/metrics").raise_for_status().text)
    return sum(
        int(sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "tidelog_store_requests_total"
        and sample.labels["kind"] in ("segment", "manifest")
        and sample.labels["verb"] in ("get", "head", "list")
    )
