"""The records that both sides send: files with one record per line, made once from a seed.

`events`: JSON of 376 bytes on average (the demo's generator); `letters`: 1 KiB of random capital letters, what Kafka's
own tool makes; `hundred`: 100 bytes of the same.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from demo.events import EventStream

SEED = 20261121
COUNTS = {"events": 200_000, "letters": 50_000, "hundred": 400_000}
FINGERPRINT_RECORDS = 1_000
RECORD_BYTES = {"letters": 1024, "hundred": 100}


def payload_file(folder: Path, kind: str) -> Path:
    """Return the path of a file with one record per line. Makes the file if it does not exist."""
    path = folder / f"{kind}-{SEED}-{_fingerprint(kind)}.lines"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_bytes(b"\n".join(_values(kind, COUNTS[kind])) + b"\n")
        draft.rename(path)
    return path


def mean_bytes(path: Path) -> float:
    """The mean size of the file's records in bytes."""
    lines = path.read_bytes().splitlines()
    return sum(map(len, lines)) / len(lines)


def _fingerprint(kind: str) -> str:
    """A checksum of the first records. It changes with the generator, so a file of an older generator is not used."""
    return f"{zlib.crc32(b''.join(_values(kind, FINGERPRINT_RECORDS))):08x}"


def _values(kind: str, count: int) -> list[bytes]:
    if kind == "events":
        chunks = EventStream(SEED).chunks(count)
        return [value for chunk in chunks for value in chunk.values.to_pylist() if value is not None]
    size = RECORD_BYTES[kind]
    letters = np.random.Generator(np.random.PCG64(SEED)).integers(65, 91, size * count, dtype=np.uint8).tobytes()
    return [letters[at : at + size] for at in range(0, size * count, size)]
