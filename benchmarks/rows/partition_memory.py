"""The memory that a broker needs for a partition: resident size with 10,000 partitions minus that with 1,000, divided
by the difference. Each partition was written once and read once.

The first thousand partitions get the same requests over the same connections. So the memory for the first requests
(threads, buffers, the allocator's arenas) is in both figures. One broker leads all partitions, on the local disk. The
archiver is off, so each partition also keeps its record of 100 bytes in the buffer.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.loads.http_socket import HttpSocket, get
from benchmarks.measure import Goal, Row, Side
from benchmarks.processes import Failed, run_module
from benchmarks.tidelog_broker import TidelogBroker
from tidelog.services.settings.settings import MIB

FEW, MANY = 1_000, 10_000
CONNECTIONS = 16
NAME = "memory-partitions"
WHAT = "memory of a broker for each 1,000 partitions that were written and read"
GOAL = Goal("at most 10 MiB", 10, at_least=False)
CLIENT = f"a produce of one record of 100 bytes and a fetch for each partition; {MANY - FEW:,} partitions more"


def rows(bench: Bench) -> list[Row]:
    """One row with one side; the figure is MiB."""
    samples, facts = [], []
    for turn in range(bench.rounds):
        few, many = _resident_mib(bench, turn)
        samples.append((many - few) / bench.scaled(MANY - FEW) * 1_000)
        facts = [f"{few:.0f} MiB with {bench.scaled(FEW):,}, {many:.0f} MiB with {bench.scaled(MANY):,} partitions"]
    side = Side("Tidelog", CLIENT, "MiB", samples, facts)
    return [Row(NAME, WHAT, GOAL, side.median, [side])]


def _resident_mib(bench: Bench, turn: int) -> tuple[float, float]:
    store = f"file:{bench.fresh_folder('partitions') / str(turn)}"
    broker = TidelogBroker(bench.children, store, {"archiver.interval.ms": 86_400_000})
    found = []
    for topic, partitions in (("few", bench.scaled(FEW)), ("more", bench.scaled(MANY - FEW))):
        broker.create_topic(topic, partitions)
        _write_each(bench, broker, topic, partitions)
        _read_each(broker, topic, partitions)
        found.append(broker.process.rss_bytes() / MIB)
    broker.stop()
    return found[0], found[1]


def _write_each(bench: Bench, broker: TidelogBroker, topic: str, partitions: int) -> None:
    run_module(
        "benchmarks.loads.prebuilt",
        *("--port", broker.port, "--topic", topic, "--partitions", partitions, "--connections", CONNECTIONS),
        *("--payload", bench.payload("hundred"), "--batch", 1, "--records", partitions),
    )


def _read_each(broker: TidelogBroker, topic: str, partitions: int) -> None:
    link = HttpSocket(broker.port)
    for partition in range(partitions):
        path = f"/v1/topics/{topic}/partitions/{partition}/records?offset=0"
        answer = link.exchange(get(path, "application/vnd.apache.arrow.stream"))
        if answer.headers.get(b"tidelog-next-offset") != b"1":
            raise Failed(f"{topic}-{partition} does not hold one record: {answer.status} {answer.body[:200]!r}")
    link.close()
