"""The zip for Spark's executors contains all code for reading: a Python without Tidelog can read with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark.segments import RECORDS_IN_SEGMENT, write_segment

from tidelog.spark_connector.package import write_package

READ_BY_ZIP = """
import sys
sys.path = [sys.argv[1], *(entry for entry in sys.path if "site-packages" in entry or "lib/python" in entry)]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
from tidelog.spark_connector import cold_reader, slices, pruning, source
from tidelog.wire.topics import SegmentDescription
assert cold_reader.__file__.startswith(sys.argv[1]), cold_reader.__file__
count = int(sys.argv[4])
segment = SegmentDescription(sys.argv[3], 0, count - 1, count, 0, 0, 0, "")
piece = slices.ColdSlice(0, segment, 10, count)
batches = cold_reader.StoreReader(sys.argv[2]).read(piece, ["value"], pruning.Interval())
print(sum(batch.num_rows for batch in batches))
"""


def test_a_python_without_tidelog_reads_a_segment_with_the_zip_alone(tmp_path: Path) -> None:
    write_package(tmp_path / "tidelog.zip")
    key = write_segment(tmp_path / "store")
    program = tmp_path / "program.py"
    program.write_text(READ_BY_ZIP)
    command = [
        sys.executable,
        str(program),
        str(tmp_path / "tidelog.zip"),
        f"file://{tmp_path}/store",
        key,
        str(RECORDS_IN_SEGMENT),
    ]

    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={}, cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) == RECORDS_IN_SEGMENT - 10
