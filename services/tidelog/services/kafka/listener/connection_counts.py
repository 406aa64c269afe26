"""Counts connections, requests and bytes of the Kafka interface, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from tidelog.services.broker.telemetry.measurements import Histogram
from tidelog.services.kafka.listener.placed_requests import PlacedRequest
from tidelog.services.kafka.protocol.api import Buffer

SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ConnectionCounts:
    """`connections`: open now. `refused`: beyond ``max.connections``. `ended`: closed by the broker with a reason.
    `requests`: by the API's name and version."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.ended = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.requests: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def answered(self, request: PlacedRequest, buffers: Sequence[Buffer], now_s: float) -> None:
        """`buffers` answer `request`."""
        name, seconds = request.api.name, now_s - request.began_s
        self.requests[name, request.version] += 1
        self.sent_bytes += sum(memoryview(buffer).nbytes for buffer in buffers)
        taken = self._seconds.get(name)
        if taken is None:
            taken = self._seconds[name] = ([0] * (len(SECONDS_BOUNDS) + 1), [0.0])
        taken[0][bisect_left(SECONDS_BOUNDS, seconds)] += 1
        taken[1][0] += seconds

    def seconds(self) -> Iterator[tuple[str, Histogram]]:
        """The time from the placing of a request to its answer, by API."""
        for name, (counts, total) in sorted(self._seconds.items()):
            yield name, Histogram(SECONDS_BOUNDS, tuple(counts), total[0])
