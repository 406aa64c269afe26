"""The zip for Spark's executors contains all code for reading: a Python without Tidelog can read with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from tests.topic_segments import Ends, log_of, write_segment

from tidelog.spark_connector.package import write_package

READ_BY_ZIP = """
import sys
sys.path = [sys.argv[1], *(entry for entry in sys.path if "site-packages" in entry or "lib/python" in entry)]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
import msgspec
from tidelog.spark_connector import source
from tidelog.spark_connector.reads import cold_reader, pruning, slices
from tidelog.wire.topic_log import TopicLogDescription
assert cold_reader.__file__.startswith(sys.argv[1]), cold_reader.__file__
log = msgspec.json.decode(sys.argv[2], type=TopicLogDescription)
[wanted] = slices.slices_of(log, [slices.PartitionRange(log.partitions[0], 10, 100)])
batches = cold_reader.StoreReader(log.store).read(wanted, ["value"], pruning.Interval())
print(sum(batch.num_rows for batch in batches))
"""


def test_a_python_without_tidelog_reads_a_segment_with_the_zip_alone(tmp_path: Path) -> None:
    write_package(tmp_path / "tidelog.zip")
    segment = write_segment(tmp_path / "store", {0: range(100), 1: range(7)}, 0)
    log = log_of(tmp_path / "store", [segment], {0: Ends(0, 100, 100), 1: Ends(0, 7, 7)})
    program = tmp_path / "program.py"
    program.write_text(READ_BY_ZIP)
    command = [sys.executable, str(program), str(tmp_path / "tidelog.zip"), msgspec.json.encode(log).decode()]

    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={}, cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) == 90


IMPORTED_WITH_FEW = """
import sys
class Few:
    def find_spec(self, name, path=None, target=None):
        if name in ("cachetools", "aioboto3", "aiohttp", "rich", "typer", "urllib3", "zstandard", "grpc"):
            raise ImportError(f"executors do not have {name}")
sys.meta_path.insert(0, Few())
import tidelog.spark_connector.source
import tidelog.spark_connector.jobs.__main__
import tidelog.spark_connector.jobs.segment_checks
"""


def test_jobs_and_tasks_import_only_what_executors_have() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORTED_WITH_FEW], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
