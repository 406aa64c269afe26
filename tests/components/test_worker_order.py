"""Each folder of tests has its place in the order of the workers, and a worker that dies costs one test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.worker_order import ON_ONE_WORKER, ORDER, FilesFromBothEnds, place

TESTS = Path(__file__).parents[1]


def test_the_order_names_every_folder_of_tests() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert set(ORDER) == folders
    assert len(ORDER) == len(folders)
    assert all((TESTS.parent / folder).is_dir() for folder in ON_ONE_WORKER)


def test_clusters_come_first_and_an_unknown_folder_last() -> None:
    nodes = [f"tests/{folder}/test_x.py::test_y[a/b]" for folder in ("new", "simulation", "storage/stores", "chaos")]
    assert [place(node) for node in nodes] == [len(ORDER), len(ORDER) - 1, len(ORDER) - 2, 0]


class Worker:
    """A worker as the scheduler sees it. `given`: the tests that the scheduler sent to it."""

    shutting_down = False

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[str] = []
        self._tests = tests

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += [self._tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


TESTS_OF_FILES = [f"tests/{file}.py::test_{number}" for file in "abcdef" for number in range(4)]


def scheduled(*workers: Any) -> FilesFromBothEnds:
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(getvalue=lambda _: ["2*popen"], option=option)
    scheduler = FilesFromBothEnds(config)
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS_OF_FILES)
    scheduler.schedule()
    return scheduler


def run_all(scheduler: FilesFromBothEnds, worker: Any, done: int = 0) -> None:
    """Complete what `worker` is given, from the test at `done` on, until it is given nothing more."""
    while done < len(worker.given):
        scheduler.mark_test_complete(worker, TESTS_OF_FILES.index(worker.given[done]))
        done += 1


def test_workers_take_whole_files_from_both_ends() -> None:
    first, second = (Worker(name, TESTS_OF_FILES) for name in ("gw0", "gw1"))
    scheduler = scheduled(first, second)
    assert {name.partition("::")[0] for name in first.given} == {"tests/a.py"}
    assert {name.partition("::")[0] for name in second.given} == {"tests/f.py"}
    run_all(scheduler, second)
    assert second.given == [name for file in "fedcb" for name in TESTS_OF_FILES if f"/{file}." in name]
    run_all(scheduler, first)
    assert scheduler.tests_finished


def test_a_test_that_ends_its_worker_is_not_run_again_and_the_others_are_run_once() -> None:
    first, second = (Worker(name, TESTS_OF_FILES) for name in ("gw0", "gw1"))
    scheduler: Any = scheduled(first, second)
    scheduler.mark_test_complete(first, 0)
    assert scheduler.remove_node(first) == "tests/a.py::test_1"
    third = Worker("gw2", TESTS_OF_FILES)
    scheduler.add_node(third)
    scheduler.add_node_collection(third, TESTS_OF_FILES)
    scheduler.schedule()
    run_all(scheduler, third)
    run_all(scheduler, second)
    assert sorted([*TESTS_OF_FILES[:2], *second.given, *third.given]) == sorted(TESTS_OF_FILES)
    assert scheduler.tests_finished
