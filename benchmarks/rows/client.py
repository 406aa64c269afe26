"""The shipped Python client with its defaults: speed, and bytes on the wire, beside the same without compression.

Client and broker share the machine's cores. Each topic has four partitions. Consumers read from the broker's memory.
The bytes on the wire are counted by a proxy between client and broker, with all headers, in a run of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.bench import Bench
from benchmarks.counting_proxy import CountingProxy
from benchmarks.loads.result import LoadResult
from benchmarks.measure import Goal, Row, Side, interleave
from benchmarks.processes import run_module
from benchmarks.rows.produce import load_facts
from benchmarks.tidelog_broker import TidelogBroker

PARTITIONS = 4
CACHE_MIB = 2_048  # all records stay in memory
COUNTED = 200_000
CLIENT = "tidelog.client with its defaults (zstd)"
PLAIN = "tidelog.client with compression none"
WIRE_GOAL = Goal("at most 0.25 x the raw bytes", 0.25, at_least=False)


@dataclass(frozen=True)
class ClientLoad:
    """A load of `benchmarks.loads.client_calls`, its payload, and its goal in `unit`."""

    name: str
    what: str
    load: str
    payload: str
    records: int
    unit: str
    goal: Goal

    def figure(self, result: LoadResult) -> float:
        return result.records_per_s if self.unit == "records/s" else result.mb_per_s


LOADS = (
    ClientLoad(
        "client-consume-tables",
        "Consumer.batches, JSON events of 376 bytes, hot",
        *("consume-tables", "events", 2_000_000, "MB/s"),
        Goal("600 MB/s", 600),
    ),
    ClientLoad(
        "client-consume-records",
        "Consumer.records, JSON events of 376 bytes one by one, hot",
        *("consume-records", "events", 2_000_000, "records/s"),
        Goal("1,000,000 records/s", 1_000_000),
    ),
    ClientLoad(
        "client-produce-records",
        "Producer.send, JSON events of 376 bytes one by one, local store with fsync",
        *("produce-records", "events", 2_000_000, "records/s"),
        Goal("700,000 records/s", 700_000),
    ),
    ClientLoad(
        "client-produce-tables",
        "Producer.send_batch, Arrow tables of 1 KiB of random letters, local store with fsync",
        *("produce-tables", "letters", 600_000, "MB/s"),
        Goal("200 MB/s", 200),
    ),
)
"""Consumers first: what producers send later would push the records that they read out of the broker's memory."""


def rows(bench: Bench) -> list[Row]:
    folder = bench.fresh_folder("client")
    settings = {"cache.max.bytes": CACHE_MIB << 20, "archiver.min.bytes": 1 << 40, "archiver.interval.ms": 86_400_000}
    broker = TidelogBroker(bench.children, f"file:{folder / 'tidelog'}", settings)
    broker.create_topic("read", PARTITIONS)
    _run(bench, broker.url, "produce-tables", "read", "events", LOADS[0].records, "zstd")
    found = [_row(bench, broker, load) for load in LOADS]
    found += _wire_rows(bench, broker)
    broker.stop()
    return found


def _row(bench: Bench, broker: TidelogBroker, load: ClientLoad) -> Row:
    topic = "read"
    if load.load.startswith("produce"):
        topic = load.name
        broker.create_topic(topic, PARTITIONS)
    sides = {
        compression: partial(_run, bench, broker.url, load.load, topic, load.payload, load.records, compression)
        for compression in ("zstd", "none")
    }
    for run in sides.values():
        run()  # warm up
    results: dict[str, list[LoadResult]] = interleave(bench.rounds, sides)
    ours = _side("compressed", CLIENT, load, results["zstd"])
    plain = _side("uncompressed", PLAIN, load, results["none"])
    return Row(load.name, load.what, load.goal, ours.median, (ours, plain), unit=load.unit)


def _side(name: str, client: str, load: ClientLoad, results: Sequence[LoadResult]) -> Side:
    return Side(name, client, load.unit, [load.figure(one) for one in results], load_facts(list(results)))


def _wire_rows(bench: Bench, broker: TidelogBroker) -> list[Row]:
    produced: dict[str, float] = {}
    consumed: dict[str, float] = {}
    for compression in ("zstd", "none"):
        topic = f"wire-{compression}"
        broker.create_topic(topic, PARTITIONS)
        with CountingProxy(broker.url) as proxy:
            sent = _run(bench, proxy.url, "produce-records", topic, "events", COUNTED, compression)
            produced[compression] = proxy.asked_bytes / sent.value_bytes
            before = proxy.answered_bytes
            read = _run(bench, proxy.url, "consume-tables", topic, "events", 0, compression)
            consumed[compression] = (proxy.answered_bytes - before) / read.value_bytes
    return [
        _wire_row("client-wire-produce", "bytes sent for each byte of JSON events, Producer.send", produced),
        _wire_row("client-wire-consume", "bytes received for each byte of JSON events, Consumer", consumed),
    ]


def _wire_row(name: str, what: str, ratios: dict[str, float]) -> Row:
    ours = Side("compressed", CLIENT, "x", [ratios["zstd"]])
    plain = Side("uncompressed", PLAIN, "x", [ratios["none"]])
    return Row(name, what, WIRE_GOAL, ratios["zstd"], (ours, plain), unit="x the raw bytes")


def _run(bench: Bench, url: str, load: str, topic: str, payload: str, records: int, compression: str) -> LoadResult:
    out = run_module(
        "benchmarks.loads.client_calls",
        *(load, "--url", url, "--topic", topic, "--payload", bench.payload(payload)),
        *("--records", bench.scaled(records), "--compression", compression),
    )
    return LoadResult.from_output(out)
