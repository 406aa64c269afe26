"""The rows of verification run over a simulated bucket, with a twentieth of the segments."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.made_up_bucket import FIRST_PARTITION, TOPIC, TOPIC_ID, MadeUpBucket
from tests.benchmarks.test_bench_quick import bench

from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.manifest_log import ManifestLog


def test_a_quick_run_of_verify(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "verify", keep_cache=True)
    assert done.returncode == 0, done.stderr
    took, memory = json.loads((tmp_path / "artifacts" / "bench-quick.json").read_text())["rows"]
    assert (took["name"], memory["name"]) == ("verify-time", "verify-memory")
    assert took["measured"] > 0


async def test_a_made_up_footer_that_is_another_segments_is_found() -> None:
    """The benchmark does verify: it reports an error if a manifest names one segment in place of another."""
    bucket = MadeUpBucket(request_s=0.0)
    await bucket.fill(partitions=1, segments=3)
    assert [finding async for finding in BucketVerification(bucket).findings()] == []
    log = ManifestLog(bucket, TOPIC, TopicPartition(TOPIC_ID, FIRST_PARTITION))
    _, second, third = (await log.latest()).segments
    bucket.mistake(second.key, third.key)
    (found,) = [finding async for finding in BucketVerification(bucket).findings()]
    assert (found.key, "its name says" in found.text) == (second.key, True)
