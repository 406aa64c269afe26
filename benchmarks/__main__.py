"""`python -m benchmarks`: run the rows, print the table, write JSON, a picture and a page.

    python -m benchmarks                    everything (more than an hour on two cores)
    python -m benchmarks --quick            checks that all sides still run; too short to judge by
    python -m benchmarks --only produce     one family; its rows replace those of the last run
    python -m benchmarks --list             what there is

Writes everything to `artifacts/`. With `--evidence` it also writes the figures of record in `docs/evidence/`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.machine import describe_machine, describe_run
from benchmarks.measure import Machine, Report, Row
from benchmarks.picture import save_picture
from benchmarks.processes import Children
from benchmarks.rows import (
    archiving,
    archiving_pace,
    assignment,
    client,
    cluster_puts,
    cold_read,
    compaction,
    cpu,
    etcd_load,
    fetch,
    forwarding,
    group_commits,
    group_deaths,
    json_produce,
    kafka_in_flight,
    kafka_protocol,
    kafka_rest,
    latency,
    manifest_size,
    memory,
    open_parquet,
    partition_memory,
    placement,
    produce,
    put_costs,
    puts,
    record_batches,
    replay,
    replay_beside_kafka,
    restarts,
    s2,
    spark,
    steady_state,
    stored,
    takeover,
    three_brokers,
    topic_creation,
    verify,
)
from benchmarks.table import page, print_rows


def _kafka_protocol(bench: Bench) -> list[Row]:
    return [*kafka_protocol.rows(bench), *kafka_in_flight.rows(bench)]


FAMILIES: dict[str, Callable[[Bench], list[Row]]] = {
    "produce": produce.rows,
    "json": json_produce.rows,
    "kafka-rest": kafka_rest.rows,
    "s2": s2.rows,
    "fetch": fetch.rows,
    "client": client.rows,
    "stored": stored.rows,
    "spark": spark.rows,
    "latency": latency.rows,
    "puts": puts.rows,
    "put-costs": put_costs.rows,
    "memory": memory.rows,
    "takeover": takeover.rows,
    "forwarding": forwarding.rows,
    "placement": placement.rows,
    "assignment": assignment.rows,
    "group-commits": group_commits.rows,
    "cluster-puts": cluster_puts.rows,
    "topic-creation": topic_creation.rows,
    "partition-memory": partition_memory.rows,
    "etcd-load": etcd_load.rows,
    "three-brokers": three_brokers.rows,
    "restarts": restarts.rows,
    "group-deaths": group_deaths.rows,
    "archiving": archiving.rows,
    "archiving-pace": archiving_pace.rows,
    "compaction": compaction.rows,
    "manifest-size": manifest_size.rows,
    "cold-read": cold_read.rows,
    "replay": replay.rows,
    "open-parquet": open_parquet.rows,
    "verify": verify.rows,
    "replay-beside-kafka": replay_beside_kafka.rows,
    "steady-state": steady_state.rows,
    "cpu": cpu.rows,
    "record-batches": record_batches.rows,
    "kafka-protocol": _kafka_protocol,
}
ORDER = (
    *("produce-events", "produce-letters", "produce-json", "rest", "minio", "produce-hundred"),
    *("steady-state", "cpu", "record-batches", "kafka", "fetch", "client", "stored"),
    *("spark-read", "spark-source", "ack", "puts", "memory", "takeover", "restart", "forwarded", "three-brokers"),
    *("topic", "etcd", "placement", "group", "archiving", "compaction", "manifest", "cold-read"),
    *("replay", "open", "verify"),
)
"""The order of rows, by prefixes of their names."""
ARTIFACTS = Path("artifacts")
EVIDENCE = Path("docs") / "evidence"
PAGE = EVIDENCE / "bench.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every chosen family ran, even if it missed its goals; 1 if one failed to run."""
    options = _options(arguments)
    if options.list:
        sys.stdout.write("\n".join(FAMILIES) + "\n")
        return 0
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the contexts, which stop the children
    rounds = options.rounds or (1 if options.quick else 3)
    machine = describe_machine(quick=options.quick)
    rows, failed = ([], []) if options.render else _run(options, console, rounds)
    stored_json = ARTIFACTS / ("bench-quick.json" if options.quick else "bench.json")
    report = _earlier(stored_json, machine).with_rows(rows, ORDER)
    _write(report, stored_json, evidence=options.evidence)
    print_rows(Console(width=160 if not sys.stdout.isatty() else None), report)
    for name in failed:
        console.print(f"[red]{name} failed[/]")
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Tidelog beside Kafka and s2 lite")
    parser.add_argument("names", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; none: all")
    parser.add_argument("--only", action="append", default=[], metavar="FAMILY", help="the same, as an option")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--rounds", type=int, help="rounds of each side (3; quick: 1)")
    parser.add_argument("--evidence", action="store_true", help="also write docs/evidence/bench.*")
    parser.add_argument("--render", action="store_true", help="run nothing: write the last run's figures again")
    parser.add_argument("--note", default="", help="a remark for the page, for example that the machine was shared")
    parser.add_argument("--scratch", type=Path, help="where data and logs go: the disk under test")
    parser.add_argument("--list", action="store_true", help="the families")
    options = parser.parse_args(arguments)
    options.names = [*options.names, *options.only] or list(FAMILIES)
    if unknown := [name for name in options.names if name not in FAMILIES]:
        parser.error(f"no family: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    return options


def _run(options: argparse.Namespace, console: Console, rounds: int) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=options.scratch) as scratch:
        for name in options.names:
            console.print(f"[bold]{name}[/] ...")
            origin = describe_run(rounds=rounds, scratch=Path(scratch), note=options.note)
            with Children(Path(scratch)) as children:
                bench = Bench(options.quick, rounds, Path(scratch), children)
                try:
                    found = FAMILIES[name](bench)
                    origin = replace(origin, settings=children.settings)
                    rows += [replace(row, origin=origin) for row in found]
                except Exception:  # the other families still run; the exit code reports the failure
                    console.print(traceback.format_exc(), markup=False)
                    failed.append(name)
    return rows, failed


def _earlier(path: Path, machine: Machine) -> Report:
    """Load the last report, with this run's machine: a run of one family keeps the rows of the others."""
    earlier = Report.from_json(path.read_text()) if path.exists() else None
    return Report(machine, earlier.rows if earlier else ())


def _write(report: Report, path: Path, *, evidence: bool) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(report.to_json())
    save_picture(report, path.with_suffix(".png"))
    if evidence:
        EVIDENCE.mkdir(parents=True, exist_ok=True)
        (EVIDENCE / "bench.json").write_text(report.to_json())
        save_picture(report, EVIDENCE / "bench.png")
        PAGE.write_text(page(report))


if __name__ == "__main__":
    sys.exit(main())
