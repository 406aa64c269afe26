"""A connection to a broker for Spark's processes: some calls of `docs/http-api.md` over the standard library.

Spark's executors run this module with pyspark, pyarrow, numpy and msgspec only. `tidelog.client` needs more packages.
All calls are safe to repeat: they read, delete, create an object or append an idempotent producer's batch. So a call is
sent again a few times if the broker asks for it (429, 503) or the connection breaks.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa

from tidelog.storage.errors import Corrupt, Fenced, Unavailable
from tidelog.storage.runtime import pause
from tidelog.wire.cluster import ClusterDescription
from tidelog.wire.errors import error_of_answer
from tidelog.wire.paths import topic_target
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest, partition_ranges, whole_log
from tidelog.wire.topics import ListedTopic, ResolvedOffsets, TopicDescription, TopicPage

JSON = "application/json"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
TIMEOUT_S = 60
ATTEMPTS = 5
PAUSE_S = 0.2
PAUSE_S_MAX = 5.0
RECORDS_PER_FETCH_MAX = 100_000

T = TypeVar("T")
Buffer: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class Fetch:
    """The records of one answer. Reading continues at `next_offset`."""

    batches: tuple[pa.RecordBatch, ...]
    next_offset: int


class BrokerConnection:
    """One kept-alive connection, for one thread at a time."""

    def __init__(self, url: str, attempts: int = ATTEMPTS) -> None:
        self.url = url
        self._attempts = attempts
        self._address = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Calling it again does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def topics(self) -> list[ListedTopic]:
        """Every topic, page by page."""
        page = self._value("/v1/topics", TopicPage)
        found = [*page.topics]
        while page.next is not None:
            page = self._value(f"/v1/topics?after={quote(page.next, safe='')}", TopicPage)
            found += page.topics
        return found

    def topic(self, name: str) -> TopicDescription:
        """Raises `NotFound`."""
        return self._value(f"/v1/topics/{quote(name, safe='')}", TopicDescription)

    def cluster(self) -> ClusterDescription:
        """The broker, its store and its cluster."""
        return self._value("/v1/cluster", ClusterDescription)

    def topic_log(self, topic: str, request: TopicLogRequest) -> TopicLogDescription:
        """The segments of a topic and the ends of its partitions, page by page. Raises `NotFound`."""
        return whole_log(
            request, lambda asked: self._value(topic_target(topic, "log", asked.query()), TopicLogDescription)
        )

    def offsets_at(self, topic: str, timestamp_ms: int, partitions: Iterable[int]) -> Mapping[int, int]:
        """The offset of the first record at or after `timestamp_ms` in each of `partitions`; without one, the high
        watermark."""
        query = {"at": f"@{timestamp_ms}", "partitions": partition_ranges(partitions)}
        return self._value(topic_target(topic, "offsets", query), ResolvedOffsets).by_partition()

    def fetch(self, topic: str, partition: int, start: int, end: int) -> Fetch:
        """Some records of ``[start, end)``, beginning at `start`. Raises `OutOfRange`, `NotFound`."""
        query = urlencode({"offset": start, "max_records": min(end - start, RECORDS_PER_FETCH_MAX)})
        path = f"{_partition_path(topic, partition)}/records?{query}"
        headers, body = self._call("GET", path, {"Accept": ARROW_STREAM})
        with pa.ipc.open_stream(body) as stream:
            return Fetch(tuple(stream), next_offset=int(headers["tidelog-next-offset"]))

    def get(self, path: str, accept: str = JSON) -> bytes:
        return self._call("GET", path, {"Accept": accept})[1]

    def put(self, path: str, body: Buffer, media: str) -> None:
        self._call("PUT", path, {"Content-Type": media}, body)

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        return self._call("POST", path, headers, body)[1]

    def delete(self, path: str) -> None:
        self._call("DELETE", path, {"Accept": JSON})

    def _value(self, path: str, shape: type[T]) -> T:
        body = self.get(path)
        try:
            return msgspec.json.decode(body, type=shape)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the answer of {self.url}{path}", f"is not of the documented form ({error})") from error

    def _call(
        self, method: str, path: str, headers: Mapping[str, str], body: Buffer | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        for attempt in range(1, self._attempts):
            try:
                return self._call_once(method, path, headers, body)
            except (Unavailable, Fenced):
                pause(min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
        return self._call_once(method, path, headers, body)

    def _call_once(
        self, method: str, path: str, given: Mapping[str, str], content: Buffer | None
    ) -> tuple[Mapping[str, str], bytes]:
        try:
            connection = self._connection = self._connection or self._open()
            connection.request(method, f"{self._address.path}{path}", body=content, headers=given)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(
                f"no broker answers at {self.url} ({error!r}): start one with `tidelog serve`, "
                "or name its address with the option 'broker'"
            ) from error
        headers = {name.lower(): value for name, value in response.getheaders()}
        if response.status not in (http.client.OK, http.client.CREATED):
            refusal = error_of_answer(response.status, headers, body)
            refusal.add_note(f"{self.url}{path} answered {response.status}")
            raise refusal
        return headers, body

    def _open(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        return kind(self._address.netloc, timeout=TIMEOUT_S)


def _partition_path(topic: str, partition: int) -> str:
    return f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}"
