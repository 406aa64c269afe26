"""The last line that a load program prints: one JSON object. The row that started it reads it back."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

P99_SAMPLES_MIN = 100
"""With fewer samples, the 99th percentile equals the longest time, and is reported as the longest time."""


@dataclass(frozen=True)
class Latency:
    """Times of `samples` requests. `p99_ms` is None for fewer than `P99_SAMPLES_MIN` of them."""

    samples: int
    p50_ms: float
    p99_ms: float | None
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self | None:
        """Make it from measured times in any order; None if there are none."""
        if not seconds:
            return None
        times = sorted(seconds)
        p99_ms = percentile_ms(times, 0.99) if len(times) >= P99_SAMPLES_MIN else None
        return cls(len(times), percentile_ms(times, 0.5), p99_ms, times[-1] * 1e3)

    def __str__(self) -> str:
        if self.p99_ms is None:
            return f"request p50 {self.p50_ms:.1f} ms, longest of {self.samples} {self.longest_ms:.1f} ms"
        return f"request p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


@dataclass(frozen=True)
class LoadResult:
    """`value_bytes` counts only values. `cpu_seconds` is the CPU time of the load program itself. `latency` is None if
    the load program measures no latencies."""

    records: int
    value_bytes: int
    seconds: float
    requests: int
    refused: int
    cpu_seconds: float
    latency: Latency | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.value_bytes / 1e6 / self.seconds

    @property
    def gb(self) -> float:
        return self.value_bytes / 1e9

    @property
    def p50_ms(self) -> float:
        return self._latency().p50_ms

    @property
    def p99_ms(self) -> float:
        """Raises `ValueError` if too few requests were measured."""
        found = self._latency()
        if found.p99_ms is None:
            raise ValueError(f"{found.samples} requests give no p99: measure at least {P99_SAMPLES_MIN}")
        return found.p99_ms

    def _latency(self) -> Latency:
        if self.latency is None:
            raise ValueError("this load program measures no latencies")
        return self.latency

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_output(cls, output: str) -> LoadResult:
        """Parse the last line of `output`."""
        fields = json.loads(output.strip().splitlines()[-1])
        latency = fields.pop("latency")
        return cls(**fields, latency=Latency(**latency) if latency else None)


def percentile_ms(sorted_seconds: Sequence[float], part: float) -> float:
    """The percentile `part` (0 to 1) of sorted times by the nearest rank, in milliseconds."""
    return sorted_seconds[max(0, math.ceil(part * len(sorted_seconds)) - 1)] * 1e3


def own_cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
