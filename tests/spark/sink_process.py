"""A driver without Spark, as its own process, which may be killed at any moment and started again.

    python -m tests.spark.sink_process BROKER TOPIC FOLDER

It stages and commits one batch after the other, with new rows at each attempt, and then notes in FOLDER that the batch
has ended, as Spark does. The name of the sink is that of the topic.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.sink_world import BatchTarget, attempt

TASKS = 3


def main() -> int:
    broker, topic, folder = sys.argv[1:]
    target, batch = BatchTarget(broker, TASKS), next_batch(Path(folder))
    while True:
        attempt(target, topic, batch, f"{os.getpid()}", topic)
        batch += 1
        note(Path(folder), batch)


def next_batch(folder: Path) -> int:
    """The batch after the last one that has ended."""
    noted = folder / "next"
    return int(noted.read_text()) if noted.exists() else 0


def note(folder: Path, batch: int) -> None:
    temporary = folder / "next.new"
    temporary.write_text(str(batch))
    temporary.replace(folder / "next")


if __name__ == "__main__":
    sys.exit(main())
