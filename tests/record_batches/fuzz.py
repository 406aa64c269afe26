"""`make fuzz`: mutated records through `records.c` on guarded memory, each judged by the plain Python decoder.

    python -m tests.record_batches.fuzz --batches 10000000 --jobs 2
    python -m tests.record_batches.fuzz --slice 17              # one slice again, in this process

A slice runs in a process of its own, so that one that is killed by a guard page is named and does not end the run.
"""

from __future__ import annotations

import argparse
import faulthandler
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.record_batches import reference
from tests.record_batches.guarded_codec import GuardedCodec, expected_columns
from tests.record_batches.mutated_records import MutatedRecords, mutated_records

SLICE_BATCHES = 250_000
_DELTAS_ARE_OFFSETS = 1 << 40


class Disagreement(AssertionError):
    """The library and the reference differ."""


def check_slice(seed: int, batches: int) -> Counter[str]:
    """Compare `batches` mutated batches. Returns how many were refused and decoded. Raises `Disagreement`."""
    codec, outcomes = GuardedCodec(), Counter[str]()
    for number, mutated in enumerate(mutated_records(seed, batches)):
        try:
            outcomes[_checked(codec, mutated, at_end=number % 4 != 0)] += 1
        except Disagreement as error:
            raise Disagreement(f"slice {seed}, batch {number}: {error}: {mutated}") from None
    return outcomes


def _checked(codec: GuardedCodec, mutated: MutatedRecords, *, at_end: bool) -> str:
    data, count, base = mutated.data, mutated.count, mutated.base_timestamp
    fault, totals = codec.measure(data, count, base, at_end=at_end)
    try:
        records = reference.decode_records(data, count, base)
    except reference.Refused as error:
        if not fault:
            raise Disagreement(f"decoded, but the reference says {error}") from None
        return "refused"
    if fault:
        raise Disagreement(f"refused with fault {fault}, but the reference decodes it")
    expected = expected_columns(records)
    if (totals.key_bytes, totals.value_bytes) != (len(expected["keys"]), len(expected["values"])):
        raise Disagreement(f"{totals.key_bytes} bytes of keys and {totals.value_bytes} of values")
    found = codec.decode(expected, at_end=at_end)
    if found != expected:
        raise Disagreement(f"columns {[name for name in found if found[name] != expected[name]]}")
    if records:
        _check_encoding(codec, records, at_end=at_end)
    return "decoded"


def _check_encoding(codec: GuardedCodec, records: Sequence[reference.Record], *, at_end: bool) -> None:
    """The columns, encoded again, are the reference's bytes. Only dense records: a log has ascending offsets."""
    if [record.offset_delta for record in records] != list(range(len(records))):
        return
    encoded, extent = codec.encode([_DELTAS_ARE_OFFSETS + row for row in range(len(records))], at_end=at_end)
    deltas = [record.timestamp - records[0].timestamp for record in records]
    if max(map(abs, deltas)) >= 1 << 63:
        return  # the reference's numbers do not wrap
    if encoded != reference.encode_records(records, records[0].timestamp) or extent.rows != len(records):
        raise Disagreement("the columns are encoded in another way")
    if extent.timestamp_max != max(record.timestamp for record in records):
        raise Disagreement("another largest timestamp")


def _run_slice(seed: int) -> str:
    command = [sys.executable, "-m", "tests.record_batches.fuzz", "--slice", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        done.stdout if done.returncode == 0 else f"FAILED slice {seed}, exit {done.returncode}: {done.stderr[-2000:]}"
    )


def run(batches: int, jobs: int, first: int) -> int:
    began, slices, failed = time.monotonic(), -(-batches // SLICE_BATCHES), 0
    with ThreadPoolExecutor(jobs) as pool:
        for done, line in enumerate(pool.map(_run_slice, range(first, first + slices)), 1):
            failed += line.startswith("FAILED")
            print(f"{done * SLICE_BATCHES:,} batches, {time.monotonic() - began:.0f} s: {line.strip()}", flush=True)
    print(f"{slices * SLICE_BATCHES:,} mutated batches, {failed} slices failed")
    return 1 if failed else 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--batches", type=int, default=10_000_000)
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--first", type=int, default=0, help="the first slice, which is its seed")
    arguments.add_argument("--slice", type=int, help="run this one, in this process")
    given = arguments.parse_args()
    if given.slice is None:
        return run(given.batches, given.jobs, given.first)
    faulthandler.enable()
    outcomes = check_slice(given.slice, SLICE_BATCHES)
    refused, decoded = outcomes["refused"], outcomes["decoded"]
    print(f"slice {given.slice}: {refused:,} refused, {decoded:,} decoded, {time.process_time():.0f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
