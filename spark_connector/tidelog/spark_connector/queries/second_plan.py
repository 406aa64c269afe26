"""Runs a query a second time if a segment was deleted between its plan and its read.

    rows = replan_once(lambda: read(spark, subscribe="web").where("partition = 3").collect())

`read` takes one snapshot, and Spark's own Parquet reader keeps its list of files. A merge replaces segments, and the
collector deletes the replaced ones once the topic's ``file.delete.delay.ms`` (24 hours) has passed. An action that runs
later than that finds a file missing. Its records are in other segments now, so a new plan finds them. Spark offers no
place where Tidelog could make that plan within an action. The data source does not need this: it plans each action
anew, and its tasks look up a missing segment by themselves (`rows.TaskReader`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from tidelog.spark_connector.reads.slices import reads_logger
from tidelog.storage.errors import NotFound

T = TypeVar("T")

_MISSING = ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND", "java.io.FileNotFoundException")
"""Spark names a missing file by one of these, depending on when it notices."""
_SEGMENT = re.compile(r"topics/[A-Za-z0-9._-]+/[0-9a-f]{32}/\d{4,}-[0-9a-f]+\.parquet")


def replan_once(query: Callable[[], T]) -> T:
    """The result of `query`, which calls `read` and then an action. If the action finds a segment missing, `query` is
    called a second time. So everything in it may happen twice: write with ``mode("overwrite")``, not ``"append"``.
    Raises `NotFound` if a segment is missing the second time, too, and otherwise what `query` raises."""
    try:
        return query()
    except Exception as error:
        gone = missing_segment(error)
        if gone is None:
            raise
    reads_logger.info("%s was deleted after the query was planned: the query is planned again", gone)
    try:
        return query()
    except Exception as error:
        gone = missing_segment(error)
        if gone is None:
            raise
        raise NotFound(
            f"{gone} was deleted after the query was planned, for the second time. Call read() within the function "
            "that replan_once() gets. If the query takes longer than the topic's file.delete.delay.ms, raise that "
            "setting"
        ) from error


def missing_segment(error: BaseException) -> str | None:
    """The key of the segment that Spark did not find; None for any other error."""
    text = str(error)
    found = _SEGMENT.search(text) if any(sign in text for sign in _MISSING) else None
    return found[0] if found else None
