"""All jobs. A line here adds one."""

from __future__ import annotations

from tidelog.spark_connector.jobs.backfill import BACKFILL
from tidelog.spark_connector.jobs.compact import COMPACT
from tidelog.spark_connector.jobs.export import EXPORT
from tidelog.spark_connector.jobs.job import JobKind
from tidelog.spark_connector.jobs.repartition import REPARTITION
from tidelog.spark_connector.jobs.transform import TRANSFORM
from tidelog.spark_connector.jobs.verify import VERIFY

JOBS: tuple[JobKind, ...] = (BACKFILL, COMPACT, EXPORT, REPARTITION, TRANSFORM, VERIFY)
