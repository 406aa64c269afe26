"""Counts connections, requests and bytes of the Kafka door. The HTTP door exports them, with all other metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

from tidelog.services.broker.telemetry.measurements import Histogram

SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class _Seconds:
    """A histogram that is being filled."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total = 0.0


class KafkaCounts:
    """`connections`: open now. `refused`: beyond ``max.connections`` or ``max.connections.per.ip``. `ended`: closed by
    the broker, which logged the reason. `held_bytes`: of requests in memory now. `requests`: answered, by the API's
    name and version. `errors`: error codes in answers, by the name of the API and of the code."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.ended = 0
        self.held_bytes = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.requests: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, _Seconds] = {}

    def answered(self, api: str, version: int, seconds: float, sent_bytes: int) -> None:
        """A request of `api` got an answer of `sent_bytes`, `seconds` after it was placed."""
        self.requests[api, version] += 1
        self.sent_bytes += sent_bytes
        taken = self._seconds.get(api)
        if taken is None:
            taken = self._seconds[api] = _Seconds()
        taken.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        taken.total += seconds

    def failed(self, api: str, errors: Mapping[str, int]) -> None:
        """An answer of `api` has `errors`: how often each of Kafka's codes is in it."""
        for code, times in errors.items():
            self.errors[api, code] += times

    def seconds(self) -> Iterator[tuple[str, Histogram]]:
        """The time from the placing of a request to its answer, by API."""
        for api, taken in sorted(self._seconds.items()):
            yield api, Histogram(SECONDS_BOUNDS, tuple(taken.counts), taken.total)
