"""What a load program prints as its last line: one JSON object, read back by the row that started it."""

from __future__ import annotations

import json
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LoadResult:
    """`value_bytes` counts values alone; `cpu_seconds` is what the load program itself took."""

    records: int
    value_bytes: int
    seconds: float
    requests: int
    refused: int
    p50_ms: float
    p99_ms: float
    cpu_seconds: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.value_bytes / 1e6 / self.seconds

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_output(cls, output: str) -> LoadResult:
        return cls(**json.loads(output.strip().splitlines()[-1]))


def percentile_ms(sorted_seconds: Sequence[float], part: float) -> float:
    """The value at `part` (0 to 1) of sorted times, in milliseconds."""
    return (
        sorted_seconds[min(len(sorted_seconds) - 1, int(len(sorted_seconds) * part))] * 1e3 if sorted_seconds else 0.0
    )


def own_cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
