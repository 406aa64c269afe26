"""Packs the parts of Tidelog that Spark's executors need into a zip for ``--py-files``:

    tidelog spark package tidelog.zip
    spark-submit --py-files tidelog.zip tidelog_jobs.py export --topic web --to s3a://lake/web

It also writes `tidelog_jobs.py`, the program of all jobs, into the zip's folder. Besides the zip, the executors' Python
needs only pyspark, pyarrow, numpy and msgspec.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

JOBS_PROGRAM = "tidelog_jobs.py"
_JOBS_TEXT = """import sys

from tidelog.spark_connector.jobs.__main__ import main

sys.exit(main())
"""

PACKED = ("tidelog.spark_connector", "tidelog.wire", "tidelog.storage")
DISCOVERY = "pyspark_tidelog"
"""The module through which Spark finds the format."""


def write_package(target: Path) -> None:
    """Write the zip, and the program of all jobs into its folder. Python finds a namespace package in a zip only if its
    folder has an entry of its own."""
    target.with_name(JOBS_PROGRAM).write_text(_JOBS_TEXT)
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        archive.mkdir("tidelog")
        for name in PACKED:
            spec = find_spec(name)
            assert spec is not None
            assert spec.submodule_search_locations
            _add(archive, Path(spec.submodule_search_locations[0]), name.replace(".", "/"))
        discovery = find_spec(DISCOVERY)
        assert discovery is not None
        assert discovery.origin
        archive.write(discovery.origin, f"{DISCOVERY}.py")


def _add(archive: ZipFile, folder: Path, name: str) -> None:
    archive.mkdir(name)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            _add(archive, path, f"{name}/{path.name}")
        elif path.suffix in (".py", ".typed"):
            archive.write(path, f"{name}/{path.name}")


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="tidelog spark package", description="pack Tidelog for Spark's executors")
    parser.add_argument("zip", type=Path, help="the file to write")
    target = parser.parse_args().zip
    write_package(target)
    sys.stdout.write(f"{target}\n{target.with_name(JOBS_PROGRAM)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
