"""CPU seconds to decode and to encode a GB of JSON events as Kafka's record batches, in this process.

Each figure is the least of several runs: other work on the machine can only add to it. The checksum is part of it. A GB
is of records without compression. Each result is dropped before the next one is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.measure import Goal, Row, Side
from tidelog.record_batches.batch_header import Codec
from tidelog.record_batches.decode import decode_batch
from tidelog.record_batches.encode import BatchRules, encode_batches
from tidelog.storage.records import HEADERS, RECORD_SCHEMA

RECORDS = 100_000
RUNS, SMALL_RUNS = 20, 2_000
BYTES_MAX = 1 << 30
NOW_MS, KEYS = 1_700_000_000_000, 997
UNIT = "CPU s/GB"
WHAT = "a GB of JSON events of 376 bytes"
GOAL = Goal("at most 0.3", 0.3, at_least=False)
OURS = "tidelog.record_batches in this process, batches of 1 MiB"
COMPRESSED = (Codec.LZ4, Codec.ZSTD)


def rows(bench: Bench) -> list[Row]:
    """Two rows: decode and encode."""
    log = _log(bench)
    return [_row(name, run, log) for name, run in {"decode": _decoding, "encode": _encoding}.items()]


Run = Callable[[], object]


def _row(name: str, run_of: Callable[[pa.RecordBatch, Codec], Run], log: pa.RecordBatch) -> Row:
    raw_bytes = sum(decode_batch(batch, BYTES_MAX).raw_bytes for batch in _batches(log, Codec.NONE))
    gb = raw_bytes / 1e9
    samples = [_least_cpu_s(run_of(log, Codec.NONE), RUNS // 2) / gb for _ in range(2)]
    facts = [f"{codec.name.lower()} {_least_cpu_s(run_of(log, codec), 3) / gb:.2f} {UNIT}" for codec in COMPRESSED]
    small = run_of(log.slice(0, 1), Codec.NONE)
    facts.append(f"a batch of one record {_least_cpu_s(small, SMALL_RUNS) * 1e6:.0f} µs")
    side = Side("Tidelog", OURS, UNIT, samples, facts)
    return Row(f"record-batches-{name}", f"CPU seconds to {name} {WHAT}", GOAL, side.low, [side])


def _decoding(log: pa.RecordBatch, codec: Codec) -> Run:
    batches = _batches(log, codec)

    def run() -> None:
        for batch in batches:
            decode_batch(batch, BYTES_MAX)

    return run


def _encoding(log: pa.RecordBatch, codec: Codec) -> Run:
    def run() -> None:
        for _ in encode_batches(log, BatchRules(leader_epoch=1, codec=codec)):
            pass

    return run


def _batches(log: pa.RecordBatch, codec: Codec) -> Sequence[pa.Buffer]:
    return list(encode_batches(log, BatchRules(leader_epoch=1, codec=codec)))


def _least_cpu_s(run: Run, runs: int) -> float:
    def cpu_s() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return min(cpu_s() for _ in range(runs))


def _log(bench: Bench) -> pa.RecordBatch:
    """Events as a reader of the log gets them, with keys."""
    values = bench.payload("events").read_bytes().splitlines()[: bench.scaled(RECORDS)]
    rows = np.arange(len(values))
    keys = [b"user-%d" % (row % KEYS) for row in rows]
    columns = [pa.array(rows), pa.array(NOW_MS + rows // 10).cast(RECORD_SCHEMA.field("timestamp").type)]
    columns += [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.nulls(len(values), HEADERS)]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
