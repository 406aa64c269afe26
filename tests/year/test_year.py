"""A small year in the suite; with `make soak` a larger one, and one on MinIO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.components.required import require_component
from tests.components.s3_endpoint import S3Bucket
from tests.year.year_outcome import Place, YearOptions, YearOutcome
from tests.year.year_report import write_report
from tests.year.year_run import KINDS, YearRun
from tests.year.year_source import MIB

SMALL = YearOptions(
    gigabytes=0.02,
    faults=2,
    reads=10,
    segment_bytes=MIB,
    settle_s=60,
    quiet_s=1,
    fresh_reads=False,
    tidy=False,
    archiver_interval_ms=300,
)
KIND_NAMES = {kind for kind, _ in KINDS}
LARGE = YearOptions(gigabytes=1.0, segment_bytes=4 * MIB)


def proved(outcome: YearOutcome, folder: Path) -> None:
    """Every check holds, and the report says so."""
    page = write_report(outcome, folder).read_text()
    assert outcome.at_rest, page
    assert [check for check in outcome.checks if not check.holds] == [], page
    assert "**NO**" not in page
    assert len(outcome.faults) == outcome.options.faults
    assert {"WAL entries", "manifests", "segments", "journal"} <= {kind.kind for kind in outcome.kinds} <= KIND_NAMES


def test_a_small_year_is_kept_expired_and_compacted_through_restarts(tmp_path: Path) -> None:
    outcome = YearRun(Place(tmp_path, f"file:{tmp_path / 'data'}"), SMALL, print).run()
    proved(outcome, tmp_path)


@pytest.mark.soak
def test_a_year_stays_tidy(tmp_path: Path) -> None:
    options = replace(LARGE, etcd=require_component("etcd"))
    outcome = YearRun(Place(tmp_path, f"file:{tmp_path / 'data'}"), options, print).run()
    proved(outcome, tmp_path)
    assert outcome.costs.total.garbage_bytes == 0


@pytest.mark.soak
def test_a_year_on_s3(tmp_path: Path, minio_bucket: S3Bucket) -> None:
    place = Place(tmp_path, f"{minio_bucket.url}/year", minio_bucket.endpoint.environment())
    proved(YearRun(place, LARGE, print).run(), tmp_path)
