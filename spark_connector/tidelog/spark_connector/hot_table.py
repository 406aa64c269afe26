"""A small hot tail, fetched by the driver when `read` is called.

The way through the data source starts Python twice in the driver, to plan, and once for each task: seconds in a new
session, more than all else that counting a few million cold records takes. Nor do executors need Python without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from tidelog.spark_connector.broker_connection import TopicDescription
from tidelog.spark_connector.options import ReadOptions
from tidelog.spark_connector.partition_log import HotSlice
from tidelog.spark_connector.rows import ReadTask, arrow_schema, read_task

SLICES_MAX = 32
RECORDS_MAX = 10_000
BYTES_MAX = 1 << 20
"""What is fetched stays in the query's plan and goes out with its tasks: of more than about this, starting Python is
the smaller cost."""


def fetched(
    options: ReadOptions, topic: TopicDescription, slices: Sequence[HotSlice], schema: StructType
) -> pa.Table | None:
    """The rows of `slices`; None if they are too many, or tasks of a size are asked for. Raises `DataLoss`, `NotFound`,
    `Unavailable`."""
    if len(slices) > SLICES_MAX or sum(piece.end - piece.start for piece in slices) > RECORDS_MAX:
        return None
    if options.tasks_min or options.records_per_task_max:
        return None
    task = ReadTask(topic, tuple(slices), options.broker, None, options.fail_on_data_loss)
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in read_task(task, schema):
        batches.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > BYTES_MAX:
            return None
    return pa.Table.from_batches(batches, arrow_schema(schema))
