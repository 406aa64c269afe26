"""Records as bytes, with a few bytes changed: most are refused, many decode to something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.record_batches import reference
from tests.record_batches.reference import Record

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_NUMBERS = (
    0,
    1,
    -1,
    -2,
    63,
    64,
    -64,
    -65,
    8191,
    8192,
    INT32_MAX,
    -INT32_MAX - 1,
    INT32_MAX + 1,
    INT64_MAX,
    -INT64_MAX - 1,
)
PIECES = (
    *map(reference.varint, _NUMBERS),
    *(b"\xff" * size + last for size in (4, 5, 9, 10) for last in (b"\x01", b"\x0f", b"\x10", b"\x7f")),
    *(b"\x80\x00", b"\x80" * 4 + b"\x00", b"\x80" * 9 + b"\x01", b"\x80" * 9 + b"\x02"),  # more bytes than needed
    *(b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", "h\u00e4\u20ac\U0001f600".encode()),
)
_BASES = (0, 1_700_000_000_000, -1, INT64_MAX, -INT64_MAX - 1)


@dataclass(frozen=True)
class MutatedRecords:
    data: bytes
    count: int
    base_timestamp: int


def mutated_records(seed: int, batches: int) -> Iterator[MutatedRecords]:
    """`batches` of them, the same for a seed."""
    random = Random(seed)
    pool = [_valid(random) for _ in range(200)]
    for _ in range(batches):
        yield _mutated(random, pool[random.randrange(len(pool))], pool)


def _valid(random: Random) -> MutatedRecords:
    base = random.choice(_BASES[:2])
    records = [_record(random, row, base) for row in range(random.choice((0, 1, 1, 1, 2, 2, 3, 9)))]
    return MutatedRecords(reference.encode_records(records, base), len(records), base)


def _record(random: Random, row: int, base: int) -> Record:
    headers = [(random.choice(("", "a", "h\u00e4")), _bytes(random)) for _ in range(random.choice((0, 0, 1, 3)))]
    delta = random.choice((row, row, row, 2 * row, -row, INT32_MAX))
    return Record(delta, base + random.choice((0, 1, -1, 70_000)), _bytes(random), _bytes(random), headers)


def _bytes(random: Random) -> bytes | None:
    return random.choice((None, b"", b"k", random.randbytes(random.choice((3, 20, 70)))))


def _mutated(random: Random, valid: MutatedRecords, pool: list[MutatedRecords]) -> MutatedRecords:
    data = bytearray(valid.data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change(random, data, pool)
    dice = random.random()
    count = valid.count if dice < 0.9 else max(0, valid.count + random.choice((-1, 1, 2)))
    base = valid.base_timestamp if dice > 0.1 else random.choice(_BASES)
    return MutatedRecords(bytes(data[:4096]), count, base)


def _change(random: Random, data: bytearray, pool: list[MutatedRecords]) -> None:
    at = random.randrange(len(data) + 1)
    kind = random.randrange(8)
    if kind < 3 and at < len(data):
        data[at] = random.getrandbits(8)
    elif kind == 3 and at < len(data):
        data[at] ^= 1 << random.randrange(8)
    elif kind == 4:
        piece = random.choice(PIECES)
        data[at : at + random.choice((0, 1, len(piece)))] = piece
    elif kind == 5:
        del data[at : at + random.choice((1, 2, 8))]
    elif kind == 6:
        del data[at:]
    else:
        other = random.choice(pool).data
        data[at:] = other[random.randrange(len(other) + 1) :]
