"""Each folder of tests has its place in the order of the workers."""

from pathlib import Path

from tests.worker_order import ON_ONE_WORKER, ORDER, place

TESTS = Path(__file__).parents[1]


def test_the_order_names_every_folder_of_tests() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert set(ORDER) == folders
    assert len(ORDER) == len(folders)
    assert all((TESTS.parent / folder).is_dir() for folder in ON_ONE_WORKER)


def test_clusters_come_first_and_an_unknown_folder_last() -> None:
    nodes = [f"tests/{folder}/test_x.py::test_y[a/b]" for folder in ("new", "simulation", "storage/stores", "chaos")]
    assert [place(node) for node in nodes] == [len(ORDER), len(ORDER) - 1, len(ORDER) - 2, 0]
