"""Counts and times requests by route, method and status.

A request counts when the head of its answer is sent: a stream at its start, a long poll after its wait. The number of
labels is bounded: a route is a template of the API or `OTHER`, a method is one that HTTP defines or `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from starlette.types import Scope

from tidelog.services.broker.telemetry.measurements import Histogram
from tidelog.storage.runtime import Clock

SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER = "(other)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_TEMPLATE_KEY = "tidelog.route_template"


def name_route(scope: Scope, template: str) -> None:
    """Set the template of the route, for a request that bypasses the router."""
    scope[_TEMPLATE_KEY] = template


def route_of(scope: Scope) -> str:
    """The template of the request's route, such as ``/v1/topics/{topic}``."""
    named: str | None = scope.get(_TEMPLATE_KEY)
    return named or str(getattr(scope.get("route"), "path", OTHER))


class _Seconds:
    """A histogram that is being filled."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total = 0.0


class RequestMeasurements:
    """The counts of one broker since it started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, _Seconds] = {}

    def begun(self, scope: Scope) -> Callable[[int], None]:
        """Begin to measure a request. Call the returned function with the status when the answer begins."""
        began_s = self._clock.monotonic()

        def answered(status: int) -> None:
            self.answered(scope, status, self._clock.monotonic() - began_s)

        return answered

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered after `seconds`."""
        route, method = route_of(scope), scope["method"]
        self._requests[route, method if method in _METHODS else OTHER, status] += 1
        taken = self._seconds.get(route)
        if taken is None:
            taken = self._seconds[route] = _Seconds()
        taken.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        taken.total += seconds

    @property
    def requests(self) -> Mapping[tuple[str, str, int], int]:
        """Requests by route, method and status."""
        return self._requests

    def seconds(self) -> Iterator[tuple[str, Histogram]]:
        """The histogram of each route."""
        for route, taken in sorted(self._seconds.items()):
            yield route, Histogram(SECONDS_BOUNDS, tuple(taken.counts), taken.total)
