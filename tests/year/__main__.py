"""``make year``: fills a bucket with a year of events, runs upkeep, and checks it. Writes a report to artifacts/year/.

python -m tests.year --gigabytes 10                     on a folder of this disk
python -m tests.year --gigabytes 2 --minio              on MinIO
python -m tests.year --days 30 --gigabytes 0.1 --seed 7
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import minio as bench_minio
from benchmarks.processes import Children
from infra.components import component
from tests.year.year_outcome import Place, YearOptions
from tests.year.year_report import write_report
from tests.year.year_run import YearRun
from tests.year.year_source import MIB


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return 1 if a check fails."""
    chosen = _parser().parse_args(arguments)
    options = YearOptions(
        gigabytes=chosen.gigabytes,
        days=chosen.days,
        seed=chosen.seed,
        faults=chosen.faults,
        reads=chosen.reads,
        segment_bytes=chosen.segment_mib * MIB,
        settle_s=chosen.settle,
        etcd=component("etcd").find(),
    )
    if options.etcd is None:
        print(f"without etcd, so not recovered into one: {component('etcd').how}")
    if chosen.minio and (missing := bench_minio.missing()):
        print(missing, file=sys.stderr)
        return 1
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with _place(chosen.folder, on_minio=chosen.minio) as place:
        outcome = YearRun(place, options, lambda line: print(line, flush=True)).run()
        page = write_report(outcome, chosen.folder)
        if not chosen.keep:
            shutil.rmtree(chosen.folder / "data", ignore_errors=True)
    print(page.read_text())
    print(f"the report: {page}")
    return 0 if outcome.holds else 1


@contextmanager
def _place(folder: Path, *, on_minio: bool) -> Iterator[Place]:
    """Make an empty bucket."""
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    if not on_minio:
        yield Place(folder, f"file:{data}")
        return
    data.mkdir()
    with Children(folder) as children:
        server = bench_minio.Minio(children, data)
        yield Place(folder, f"s3://{bench_minio.BUCKET}/year", server.env)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=(__doc__ or "").partition("\n")[0])
    usual = YearOptions()
    parser.add_argument("--gigabytes", type=float, default=usual.gigabytes, help="of keys and values")
    parser.add_argument("--days", type=int, default=usual.days)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--faults", type=int, default=usual.faults, help="how often the broker is killed or restarted")
    parser.add_argument("--reads", type=int, default=usual.reads, help="single reads by offset, and by time")
    parser.add_argument("--segment-mib", type=int, default=usual.segment_bytes // MIB, help="the topics' segment.bytes")
    parser.add_argument("--settle", type=float, default=usual.settle_s, help="seconds that upkeep has to come to rest")
    parser.add_argument("--minio", action="store_true", help="on MinIO instead of a folder")
    parser.add_argument("--keep", action="store_true", help="leave the bucket where it is")
    parser.add_argument("--folder", type=Path, default=Path("artifacts/year"))
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
