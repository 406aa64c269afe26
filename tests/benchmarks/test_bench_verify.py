"""The rows of verification run over a simulated bucket, with a twentieth of the segments."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.made_up_bucket import SHARD, MadeUpBucket
from tests.benchmarks.test_bench_quick import bench

from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.layout import shard_segment_key


def test_a_quick_run_of_verify(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "verify", keep_cache=True)
    assert done.returncode == 0, done.stderr
    took, memory = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert (took["name"], memory["name"]) == ("verify-time", "verify-memory")
    assert took["measured"] > 0


async def test_a_made_up_segment_of_another_size_is_found() -> None:
    """The benchmark does verify: it reports an error if an object is not as the manifest says."""
    bucket = MadeUpBucket(request_s=0.0)
    await bucket.fill(topics=3, segments=3)
    assert [finding async for finding in BucketVerification(bucket).findings()] == []
    key = shard_segment_key("topic-1", f"{1:032x}", SHARD, f"{7_368_787:032x}")
    bucket.grow(key)
    (found,) = [finding async for finding in BucketVerification(bucket).findings()]
    assert (found.key, "bytes, its manifest says" in found.text) == (key, True)


async def test_the_requests_of_a_verification_follow_pages_and_not_segments() -> None:
    bucket = MadeUpBucket(request_s=0.0)
    await bucket.fill(topics=10, segments=500)
    bucket.requests = 0
    assert [finding async for finding in BucketVerification(bucket).findings()] == []
    pages, lists = 6, 10
    assert bucket.requests <= pages + lists + 20
