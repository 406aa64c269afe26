"""Decides which worker of pytest-xdist runs which files (``--dist loadfile``).

A worker runs a file from its first test to its last, so each fixture of a module is set up once. All files of Spark go
to one worker, because a Spark session takes seconds to start. The first worker takes files from the start of `ORDER`:
they start clusters, which need the whole machine. The other workers take files from its end. So two clusters rarely run
side by side, and the run ends with short files.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ORDER = (
    *("chaos", "spark", "end_to_end", "benchmarks", "year", "infra", "demo", "cli", "client", "compactor"),
    *("components", "consuming", "costs", "doors", "formats", "peers", "http", "kafka", "broker", "coordinator"),
    *("record_batches", "storage"),
    "simulation",
)
"""The folders of tests: clusters and programs first, then tests within one process."""
ON_ONE_WORKER = ("tests/spark/",)


class FilesFromBothEnds(LoadFileScheduling):
    """Gives the first worker the next file, and the other workers the last file."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in ON_ONE_WORKER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id != "gw0":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that ended the worker. It has failed and is not run again (xdist would repeat it with each
        new worker). Other workers get the rest of its file and the worker's other files."""
        files = self.assigned_work[node]
        crashed = next(((tests, name) for tests in files.values() for name, done in tests.items() if not done), None)
        if crashed:
            crashed[0][crashed[1]] = True
        self.assigned_work[node] = {file: tests for file, tests in files.items() if not all(tests.values())}
        super().remove_node(node)
        return crashed[1] if crashed else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesFromBothEnds | None:
    config.option.loadscopereorder = False
    return FilesFromBothEnds(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))


def place(nodeid: str, order: Sequence[str] = ORDER) -> int:
    """The place of the test's folder in `order`; a folder that is not in it comes last."""
    folder = nodeid.split("/")[1]
    return order.index(folder) if folder in order else len(order)
