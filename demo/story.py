"""Runs the demo: produce through a crash, read back, list the bucket, query with Spark, compare the numbers.

The broker is a real process on a local folder. Its data stays there when the demo has ended.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.agreement import Agreement, compare_fingerprints, compare_rows
from demo.broker_process import BrokerProcess
from demo.bucket_report import Bill, Kind, bill_of, kinds_in
from demo.narrator import Narrator
from demo.source import EVENT_BYTES, EventSource, FileSource, Source, SourceBatch
from demo.spark_queries import SparkRun, run_queries, spark_is_here
from demo.traffic import Crash, Produced, produce, read_back
from tidelog.client import Admin
from tidelog.storage.runtime import pause

PARTITIONS = 4
WAL_RATIO = 0.1  # a low guess of the size of a WAL entry per raw byte; only the archiver's threshold depends on it
ARCHIVER_MIN_BYTES_MAX = 8 << 20
ARCHIVER_MIN_BYTES_MIN = 1 << 10
ARCHIVE_WAIT_SECONDS = 20.0
ARCHIVE_REST_SECONDS = 1.5
POLL_SECONDS = 0.1
COUNT_SQL = "SELECT count(*) FROM records"


@dataclass(frozen=True)
class DemoOptions:
    """Without a `file`, events are generated."""

    folder: Path
    events: int = 1_000_000
    file: Path | None = None
    seed: int = 7
    crash: bool = True
    spark: bool = True


@dataclass(frozen=True)
class DemoSummary:
    """All figures of a run."""

    source: str
    folder: str
    produced: Produced
    fetch_records_per_s: float
    cold_records: int
    hot_records: int
    objects: Sequence[Kind]
    bill: Bill
    spark: SparkRun | None
    agreements: Sequence[Agreement]
    seconds: float

    @property
    def agree(self) -> bool:
        return all(agreement.agree for agreement in self.agreements)


def run_demo(options: DemoOptions, narrator: Narrator) -> DemoSummary:
    """Run all steps. Raises `TidelogError` if a step fails; numbers that differ are in the summary."""
    source = (
        EventSource(options.events, options.seed, PARTITIONS)
        if options.file is None
        else FileSource(options.file, PARTITIONS)
    )
    broker = BrokerProcess(options.folder, _settings(options.folder, source), narrator.clock)
    try:
        return _Story(options, source, narrator, broker).tell()
    finally:
        broker.stop()


class _Story:
    """The steps, in their order."""

    def __init__(self, options: DemoOptions, source: Source, narrator: Narrator, broker: BrokerProcess) -> None:
        self._options = options
        self._source = source
        self._narrator = narrator
        self._broker = broker
        self._bill = Bill()

    def tell(self) -> DemoSummary:
        began = self._narrator.clock.monotonic()
        self._start_broker()
        produced = self._produce()
        agreements, fetch_rate = self._read_back(produced)
        cold = self._cold_records()
        kinds = self._show_bucket()
        spark = self._ask_spark(agreements)
        self._note_bill()
        summary = DemoSummary(
            source=self._source.title,
            folder=str(self._options.folder),
            produced=produced,
            fetch_records_per_s=fetch_rate,
            cold_records=cold,
            hot_records=produced.records - cold,
            objects=kinds,
            bill=self._bill,
            spark=spark,
            agreements=agreements,
            seconds=self._narrator.clock.monotonic() - began,
        )
        self._conclude(summary)
        return summary

    def _start_broker(self) -> None:
        self._narrator.step("A broker on an embedded store")
        seconds = self._broker.start()
        self._narrator.say(f"process {self._broker.pid} at {self._broker.url}, ready after {seconds:.1f} s")
        self._narrator.say(f"its data: {self._options.folder / 'data'}")
        with Admin(self._broker.url) as admin:
            configs = {"retention.ms": -1}  # the generated times may be old
            admin.create_topic(self._source.topic, PARTITIONS, configs)

    def _produce(self) -> Produced:
        ending = ", and kill -9 in the middle" if self._options.crash else ""
        self._narrator.step(f"Produce {self._source.title}{ending}")
        half = max(1, self._source.raw_bytes // EVENT_BYTES) // 2
        crash = Crash(self._broker, self._narrator, half, self._note_bill) if self._options.crash else None
        tail: deque[SourceBatch] = deque()
        first = produce(_all_but_tail(self._source, tail), self._source.topic, self._broker, crash, self._narrator)
        if crash is not None and not crash.after_records:
            self._narrator.say("(too few records for a crash in the middle)")
        self._await_segments()
        self._narrator.say("the archiver has written its first segments; the remaining records are the hot tail:")
        return first + produce(tail, self._source.topic, self._broker, None, self._narrator)

    def _await_segments(self) -> None:
        """Return when there are segments and the archiver rests. Records that come now stay hot for a while."""
        clock = self._narrator.clock
        began = changed = clock.monotonic()
        cold = 0
        while clock.monotonic() - began < ARCHIVE_WAIT_SECONDS:
            before, cold = cold, self._cold_records()
            changed = clock.monotonic() if cold != before else changed
            if cold and clock.monotonic() - changed > ARCHIVE_REST_SECONDS:
                return
            pause(POLL_SECONDS)

    def _cold_records(self) -> int:
        with Admin(self._broker.url) as admin:
            return sum(partition.cold_end for partition in admin.topic(self._source.topic).partitions)

    def _note_bill(self) -> None:
        """Add the requests of the present broker process. Its counts end with it."""
        with Admin(self._broker.url) as admin:
            self._bill = self._bill + bill_of(admin)

    def _read_back(self, produced: Produced) -> tuple[list[Agreement], float]:
        self._narrator.step("Read everything back over HTTP")
        began = self._narrator.clock.monotonic()
        fetched = read_back(self._broker.url, self._source.topic, PARTITIONS, produced.records, self._narrator)
        rate = produced.records / max(1e-9, self._narrator.clock.monotonic() - began)
        agreements = compare_fingerprints(self._source.fingerprints(), fetched)
        once = all(agreement.agree for agreement in agreements)
        self._narrator.say("each record is there once and in order" if once else "[bold red]records differ[/]")
        return agreements, rate

    def _show_bucket(self) -> Sequence[Kind]:
        self._narrator.step("The objects in the bucket")
        kinds = asyncio.run(kinds_in(f"file:{self._options.folder / 'data'}"))
        rows = [(kind.name, kind.objects, kind.size_bytes, kind.example) for kind in kinds]
        self._narrator.table(("kind", "objects", "bytes", "the last one"), rows)
        return kinds

    def _ask_spark(self, agreements: list[Agreement]) -> SparkRun | None:
        if not self._options.spark:
            return None
        self._narrator.step("Two Spark queries over cold segments and hot tail together")
        if not spark_is_here():
            self._narrator.warn("Spark is not installed: pip install 'tidelog[spark]'")
            return None
        queries = self._source.queries()
        run = run_queries(self._broker.url, self._source.topic, queries)
        self._narrator.say(f"Spark {run.spark}, {run.java}; ready after {run.start_seconds:.1f} s")
        for query, result in zip(queries, run.results, strict=True):
            self._narrator.say(f"{query.title} ({result.seconds:.1f} s)")
            self._narrator.table(query.columns, result.rows)
            agreements.append(compare_rows(query.title, query.expected, result.rows))
        return run

    def _conclude(self, summary: DemoSummary) -> None:
        narrator = self._narrator
        narrator.step("Do the numbers agree?")
        rows = [(a.what, *map(_short, (a.generator, a.http, a.spark)), a.agree) for a in summary.agreements]
        narrator.table(("number", "generator", "HTTP", "Spark", "agree"), rows)
        narrator.say(f"{summary.cold_records:,} records cold, {summary.hot_records:,} hot when Spark began to read")
        narrator.step("What these requests would have cost on S3")
        narrator.table(("request", "count", "price"), summary.bill.rows())
        narrator.say(f"${summary.bill.usd:.4f} in all. On S3 a shard commits at most 4 times a second, here at will")
        narrator.step("Continue by hand")
        narrator.commands(self._commands())
        verdict = "[bold green]every number agrees[/]" if summary.agree else "[bold red]NUMBERS DIFFER[/]"
        narrator.console.print(f"\n{verdict}, {summary.seconds:.0f} s in all")

    def _commands(self) -> list[str]:
        topic = self._source.topic
        return [
            shlex.join(self._broker.command),
            f"tidelog topic consume {topic} -o -3 -e",
            f"tidelog topic describe {topic}",
            shlex.join(["tidelog", "spark", "sql", "--topic", topic, COUNT_SQL]),
            f"rm -r {shlex.quote(str(self._options.folder))}",
        ]


def _short(number: int | str | None) -> int | str:
    """A number as it is; a fingerprint by its first digits."""
    return "" if number is None else number[:12] if isinstance(number, str) else number


def _settings(folder: Path, source: Source) -> dict[str, object]:
    """The default settings, but with an archiver that works in small steps: so little data gives segments and a hot
    tail."""
    wal_bytes = int(source.raw_bytes * WAL_RATIO / PARTITIONS)
    return {
        "store": f"file:{folder / 'data'}",
        "archiver.min.bytes": max(ARCHIVER_MIN_BYTES_MIN, min(ARCHIVER_MIN_BYTES_MAX, wal_bytes // 3)),
        "log.format": "text",
    }


def _all_but_tail(source: Source, tail: deque[SourceBatch]) -> Iterator[SourceBatch]:
    """The batches of `source`, but the last `source.tail_batches` of them are left in `tail`."""
    for batch in source.batches():
        tail.append(batch)
        if len(tail) > source.tail_batches:
            yield tail.popleft()
