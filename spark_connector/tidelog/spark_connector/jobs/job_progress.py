"""Shows how far Spark's tasks are while a job runs, on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkContext
from pyspark.sql import SparkSession

TERMINAL_EVERY_S, LOG_EVERY_S = 0.5, 10.0


@dataclass(frozen=True)
class TaskCounts:
    """Tasks of the stages that Spark has planned so far; it plans later stages when earlier ones end."""

    done: int = 0
    running: int = 0
    failed: int = 0
    planned: int = 0

    def __str__(self) -> str:
        failed = f", {self.failed} failed and tried again" if self.failed else ""
        return f"{self.done} of {self.planned} tasks, {self.running} running{failed}"


@contextmanager
def progress_shown(spark: SparkSession, job: str) -> Iterator[None]:
    """Show a line about the tasks of `job` until the block ends: on a terminal in place, otherwise every
    `LOG_EVERY_S`."""
    context = spark.sparkContext
    group = f"tidelog {job}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(context, group, ended), name="job-progress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def task_counts(context: SparkContext, group: str) -> TaskCounts:
    """The tasks of all jobs of `group`."""
    tracker, total = context.statusTracker(), TaskCounts()
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            if stage := tracker.getStageInfo(stage_id):
                total = TaskCounts(
                    total.done + stage.numCompletedTasks,
                    total.running + stage.numActiveTasks,
                    total.failed + stage.numFailedTasks,
                    total.planned + stage.numTasks,
                )
    return total


def _watch(context: SparkContext, group: str, ended: threading.Event) -> None:
    in_place = sys.stderr.isatty()
    told = ""
    while not ended.wait(TERMINAL_EVERY_S if in_place else LOG_EVERY_S):
        text = f"{group}: {task_counts(context, group)}"
        if text != told:
            told = text
            sys.stderr.write(f"\r{text}\033[K" if in_place else f"{text}\n")
            sys.stderr.flush()
    if in_place and told:
        sys.stderr.write("\r\033[K")
