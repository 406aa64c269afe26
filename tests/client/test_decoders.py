"""Threads that use a class for the first time at the same moment decode it, and do not end the process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
import msgspec
from tidelog.wire.decoders import json_decoder
sys.setswitchinterval(1e-6)
for turn in range(150):
    inner = msgspec.defstruct("Inner", [(f"i{at}", list[int] | None, None) for at in range(40)])
    outer = msgspec.defstruct("Outer", [(f"f{at}", inner | None, None) for at in range(40)])
    begin = threading.Barrier(4)
    def decode():
        begin.wait()
        assert json_decoder(outer).decode(b'{"f39": {"i39": [1]}}').f39.i39 == [1]
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_build_one_decoder() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], timeout=60, capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
