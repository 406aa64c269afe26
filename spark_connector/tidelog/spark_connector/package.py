"""Packs the parts of Tidelog that Spark's executors need into a zip for ``--py-files``:

    python -m tidelog.spark_connector.package tidelog.zip
    spark-submit --py-files tidelog.zip ...

Beside the zip, the executors' Python needs only pyspark, pyarrow, numpy and msgspec.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKED = ("tidelog.spark_connector", "tidelog.wire", "tidelog.storage")


def write_package(target: Path) -> None:
    """Write the zip. Python finds a namespace package in a zip only if its folder has an entry of its own."""
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        archive.mkdir("tidelog")
        for name in PACKED:
            spec = find_spec(name)
            assert spec is not None
            assert spec.submodule_search_locations
            _add(archive, Path(spec.submodule_search_locations[0]), name.replace(".", "/"))


def _add(archive: ZipFile, folder: Path, name: str) -> None:
    archive.mkdir(name)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            _add(archive, path, f"{name}/{path.name}")
        elif path.suffix in (".py", ".typed"):
            archive.write(path, f"{name}/{path.name}")


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.spark_connector.package", description="pack Tidelog for Spark's executors"
    )
    parser.add_argument("zip", type=Path, help="the file to write")
    target = parser.parse_args().zip
    write_package(target)
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
