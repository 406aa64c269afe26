"""A connection to a broker for Spark's processes: five GETs of `docs/http-api.md`, over the standard library.

Spark's executors run this module, and they may carry nothing but pyspark and pyarrow; so it is not `tidelog.client`,
which needs more. Records come as Arrow streams. An answer that says "later" (429, 503) or a broken connection is tried
again, a few times, since all calls only read.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from tidelog.spark_connector.partition_log import ColdSegment, PartitionLog
from tidelog.storage.errors import Invalid, NotFound, OutOfRange, TidelogError, Unavailable
from tidelog.storage.runtime import pause

ARROW_STREAM = "application/vnd.apache.arrow.stream"
TIMEOUT_S = 60
ATTEMPTS = 5
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0
RECORDS_PER_FETCH_MAX = 100_000


@dataclass(frozen=True)
class TopicDescription:
    """What a read needs of a topic. `timestamp_type` as Kafka numbers it: 0 CreateTime, 1 LogAppendTime."""

    name: str
    topic_id: str
    partition_count: int
    timestamp_type: int


@dataclass(frozen=True)
class Fetch:
    """One answer; reading goes on at `next_offset`."""

    batches: tuple[pa.RecordBatch, ...]
    next_offset: int


class BrokerConnection:
    """One kept-alive connection; for one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closing again does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def topics(self) -> list[TopicDescription]:
        """Every topic, page by page."""
        page = self._json("/v1/topics")
        found = [_topic(entry) for entry in page["topics"]]
        while "next" in page:
            page = self._json(f"/v1/topics?after={quote(page['next'], safe='')}")
            found += [_topic(entry) for entry in page["topics"]]
        return found

    def topic(self, name: str) -> TopicDescription:
        """Raises `NotFound`."""
        return _topic(self._json(f"/v1/topics/{quote(name, safe='')}"))

    def partition_log(self, topic: str, partition: int) -> PartitionLog:
        """What to read, in one consistent answer. Raises `NotFound`."""
        answer = self._json(f"{_partition_path(topic, partition)}/log")
        return PartitionLog(
            topic=answer["topic"],
            topic_id=answer["topic_id"],
            partition=answer["partition"],
            log_start_offset=answer["log_start_offset"],
            cold_end=answer["cold_end"],
            high_watermark=answer["high_watermark"],
            store_url=answer["store"],
            segments=tuple(_segment(entry) for entry in answer["segments"]),
        )

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first record at or after `timestamp_ms`, else the high watermark."""
        answer = self._json(f"{_partition_path(topic, partition)}/offset?at=@{timestamp_ms}")
        return int(answer["offset"])

    def fetch(self, topic: str, partition: int, start: int, end: int) -> Fetch:
        """Some records of ``[start, end)``, from `start` on. Raises `OutOfRange`, `NotFound`."""
        query = urlencode({"offset": start, "max_records": min(end - start, RECORDS_PER_FETCH_MAX)})
        headers, body = self._get(f"{_partition_path(topic, partition)}/records?{query}", accept=ARROW_STREAM)
        with pa.ipc.open_stream(body) as stream:
            return Fetch(tuple(stream), next_offset=int(headers["tidelog-next-offset"]))

    def _json(self, path: str) -> Any:
        return json.loads(self._get(path, accept="application/json")[1])

    def _get(self, path: str, *, accept: str) -> tuple[Mapping[str, str], bytes]:
        for attempt in range(1, ATTEMPTS):
            try:
                return self._get_once(path, accept)
            except Unavailable:
                pause(min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
        return self._get_once(path, accept)

    def _get_once(self, path: str, accept: str) -> tuple[Mapping[str, str], bytes]:
        try:
            connection = self._connection = self._connection or self._open()
            connection.request("GET", f"{self._address.path}{path}", headers={"Accept": accept})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(
                f"no broker answers at {self.url} ({error!r}): start one with `tidelog serve`, "
                "or name its address with the option 'broker'"
            ) from error
        if response.status != http.client.OK:
            raise _error_of(response.status, body, f"{self.url}{path}")
        return {name.lower(): value for name, value in response.getheaders()}, body

    def _open(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        return kind(self._address.netloc, timeout=TIMEOUT_S)


def _partition_path(topic: str, partition: int) -> str:
    return f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}"


def _topic(answer: Mapping[str, Any]) -> TopicDescription:
    return TopicDescription(
        name=answer["name"],
        topic_id=answer["topic_id"],
        partition_count=len(answer["partitions"]),
        timestamp_type=int(answer["configs"].get("message.timestamp.type") == "LogAppendTime"),
    )


def _segment(answer: Mapping[str, Any]) -> ColdSegment:
    return ColdSegment(
        key=answer["key"],
        base_offset=answer["base_offset"],
        last_offset=answer["last_offset"],
        records=answer["records"],
        min_timestamp_ms=answer["min_timestamp"],
        max_timestamp_ms=answer["max_timestamp"],
    )


def _error_of(status: int, body: bytes, url: str) -> TidelogError:
    try:
        problem = json.loads(body)
        detail = str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        problem, detail = {}, f"{body[:200]!r}"
    text = f"{url} answered {status}: {detail}"
    if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
        low, high = problem["log_start_offset"], problem["high_watermark"]
        return OutOfRange(text, log_start_offset=low, high_watermark=high)
    if status == http.client.NOT_FOUND:
        return NotFound(text)
    return Unavailable(text) if status in (429, 502, 503, 504) else Invalid(text)
