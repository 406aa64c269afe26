"""A replay of a topic of four partitions from its beginning, with default settings, beside Kafka's own consumer.

Both brokers keep their defaults and are restarted beforehand. Tidelog's records are in the segments that archiving and
merging left, Kafka's in its log. The data is in the machine's page cache on both sides. The broker that is not measured
is paused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks import kafka
from benchmarks.bench import Bench
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, compare, interleave, not_run
from benchmarks.payloads import mean_bytes
from benchmarks.processes import Failed, alone, run_module
from benchmarks.rows.produce import prebuilt
from benchmarks.tidelog_broker import TidelogBroker

RECORDS, PARTITIONS = 3_000_000, 4
COLD_SECONDS_MAX = 300.0
GOAL = Goal("1 x the MB/s of Kafka's consumer", 1.0)
NAME, WHAT = (
    "replay-beside-kafka",
    "replay of four partitions of JSON events of 376 bytes, local store, default settings",
)
CONSUMER = "tidelog.client Consumer over HTTP, decodes stored row groups: sums the bytes of values"


@dataclass(frozen=True)
class Replay:
    """MB/s of values, and the broker's CPU seconds for them."""

    mb_per_s: float
    cpu_seconds: float


def rows(bench: Bench) -> list[Row]:
    if why := kafka.missing():
        return [not_run(NAME, WHAT, GOAL, why)]
    folder, records = bench.fresh_folder("replay-beside-kafka"), bench.scaled(RECORDS)
    theirs = kafka.KafkaBroker(bench.children, folder)
    theirs.create_topic("t", PARTITIONS)
    theirs.produce("t", bench.payload("events"), records)
    ours = _cold_broker(bench, f"file:{folder / 'tidelog'}", records)
    sides: dict[str, Callable[[], Replay]] = {
        "kafka": lambda: Replay(*alone(theirs.process, ours.process, lambda: theirs.consume("t", records))),
        "tidelog": lambda: _replay(ours, theirs, records),
    }
    for run in sides.values():
        run()  # warm up
    found = interleave(bench.rounds, sides)
    ours.stop()
    theirs.stop()
    gb = records * mean_bytes(bench.payload("events")) / 1e9
    side, other = _side("Tidelog", CONSUMER, found["tidelog"], gb), _side("Kafka", kafka.CONSUMER, found["kafka"], gb)
    return [compare(NAME, WHAT, GOAL, side, other)]


def _cold_broker(bench: Bench, store: str, records: int) -> TidelogBroker:
    """Restart a broker after all its records are archived."""
    broker = TidelogBroker(bench.children, store)
    broker.create_topic("t", PARTITIONS)
    prebuilt(bench, broker, "events", 2_500, records, "t", PARTITIONS)
    broker.wait_until_archived("t", PARTITIONS, COLD_SECONDS_MAX)
    broker.stop()
    return TidelogBroker(bench.children, store)


def _replay(ours: TidelogBroker, theirs: kafka.KafkaBroker, records: int) -> Replay:
    arguments = ("--url", ours.url, "--topic", "t", "--partitions", PARTITIONS, "--by", "consumer")
    out, cpu_seconds = alone(ours.process, theirs.process, lambda: run_module("benchmarks.loads.replay", *arguments))
    result = LoadResult.from_output(out)
    if result.records < records:
        raise Failed(f"the consumer read {result.records} records of {records}")
    return Replay(result.mb_per_s, cpu_seconds)


def _side(name: str, client: str, found: list[Replay], gb: float) -> Side:
    cpu = f"broker {median(one.cpu_seconds for one in found) / gb:.1f} CPU s/GB"
    return Side(name, client, "MB/s", [one.mb_per_s for one in found], [cpu])
