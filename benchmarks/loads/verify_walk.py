"""Verify a simulated bucket. Prints the time, memory and requests as a line of JSON.

python -m benchmarks.loads.verify_walk --topics 1 --segments 100000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from dataclasses import asdict, dataclass

from benchmarks.made_up_bucket import MadeUpBucket
from tidelog.storage.bucket.verify.verification import BucketVerification


@dataclass(frozen=True)
class Walk:
    """The cost of one verification. `grown_bytes`: by how much it raised the process's peak memory above that of the
    bucket alone."""

    seconds: float
    cpu_s: float
    objects: int
    stored_bytes: int
    requests: int
    grown_bytes: int


async def walk(topics: int, segments: int) -> Walk:
    bucket = MadeUpBucket()
    stored_bytes = await bucket.fill(topics, segments)
    bucket.requests = 0
    peak_bytes, began_s, cpu_s = _peak_bytes(), time.perf_counter(), time.process_time()
    verification = BucketVerification(bucket)
    found = [finding async for finding in verification.findings()]
    assert not found, found[:3]
    return Walk(
        seconds=time.perf_counter() - began_s,
        cpu_s=time.process_time() - cpu_s,
        objects=verification.summary.objects,
        stored_bytes=stored_bytes,
        requests=bucket.requests,
        grown_bytes=_peak_bytes() - peak_bytes,
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--segments", type=int, required=True, help="in each")
    options = parser.parse_args()
    print(json.dumps(asdict(asyncio.run(walk(options.topics, options.segments)))))


if __name__ == "__main__":
    main()
