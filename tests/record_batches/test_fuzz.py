"""Mutated records through the C library, in memory that ends at pages which cannot be read or written.

`make fuzz` runs ten million of them.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.record_batches import fuzz
from tests.record_batches.fuzz import Disagreement, check_slice

from tidelog.record_batches import native

BATCHES = 30_000

BEYOND = """
from tests.record_batches.guarded_codec import GuardedCodec
from tidelog.record_batches import native
codec = GuardedCodec()
codec.measure(b"\\x10" + b"\\0" * 4, 1, 0, at_end={at_end})  # a record that says 8 bytes, of which 4 are there
native.measure_records(codec._address - {before}, 5 + {after}, 1, 0)
print("survived")
"""


@pytest.mark.parametrize("seed", [1 << 32, 2 << 32])
def test_mutated_records_are_refused_or_decoded_as_the_reference_says(seed: int) -> None:
    outcomes = check_slice(seed, BATCHES)
    assert outcomes["refused"] > BATCHES // 2
    assert outcomes["decoded"] > BATCHES // 10


@pytest.mark.parametrize(("before", "after", "at_end"), [(0, 4, True), (1, 0, False)])
def test_an_access_beyond_the_buffer_kills_the_process(before: int, after: int, at_end: bool) -> None:
    program = BEYOND.format(before=before, after=after, at_end=at_end)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr


def test_a_library_that_takes_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = native.measure_records
    monkeypatch.setattr(native, "measure_records", lambda *given: (0, lenient(*given)[1]))
    with pytest.raises(Disagreement, match="decoded, but the reference says"):
        check_slice(3, 1_000)


def test_a_library_that_refuses_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = native.measure_records
    monkeypatch.setattr(native, "measure_records", lambda *given: (1, strict(*given)[1]))
    with pytest.raises(Disagreement, match="but the reference decodes it"):
        check_slice(4, 1_000)


def test_a_library_that_decodes_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "decode_records", lambda *_: None)
    with pytest.raises(Disagreement, match=r"columns .*key_validity"):
        check_slice(5, 1_000)


@pytest.mark.soak
def test_ten_million_mutated_records() -> None:
    assert fuzz.run(10_000_000, jobs=2, first=0) == 0
