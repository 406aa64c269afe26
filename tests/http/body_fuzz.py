"""Damages valid bodies and decodes them in a child process, so that a crash of the interpreter is noticed.

    python -m tests.http.body_fuzz SEED BODIES

Prints a JSON object: how many bodies were accepted, how many refused, and the first that failed in another way. An
accepted body is read to its last byte, as the broker would when it writes it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from tests.http.requests import arrow_stream, full_table, values_table

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.arrow_body import decode_arrow
from tidelog.services.http.bodies.json_body import decode_json
from tidelog.services.http.bodies.line_body import LineFields, decode_ndjson, decode_text
from tidelog.storage.errors import Invalid

RECORDS_MAX = 1_000
EXPANDED_BYTES_MAX = 1 << 20
NASTY = (b"\0", b"\xff", b"\x7f", b"\x80", b'"', b"\\", b"\n", b"{", b"[", b"\\ud800", b"1e999", b"\xff\xff\xff\xff")

Decode = Callable[[bytes], Draft]


@dataclass(frozen=True)
class Kind:
    """One kind of body: valid examples, and their decoder."""

    name: str
    seeds: Sequence[bytes]
    decode: Decode


def kinds() -> Sequence[Kind]:
    """Every media type; Arrow with and without compression."""
    many = values_table([f"value {number}".encode() * 3 for number in range(50)])
    tables = (full_table(), many)
    records = {
        "records": [
            {"key": "k", "value": {"json": {"a": [1, "ä"]}}, "timestamp": 5, "headers": [{"key": "h", "value": "x"}]},
            {"value": {"base64": "AAE="}, "timestamp": "2026-01-31T12:00:00Z", "partition": 1},
            {"value": None},
        ]
    }
    lines = b'{"user":{"id":"a"},"at":1}\n{"user":{"id":[1]},"at":"2026-01-31T12:00:00Z"}\n\n{"user":null}\n'
    fields = LineFields("user.id", "at")
    return (
        Kind("arrow", [arrow_stream(table) for table in tables], _arrow),
        Kind("arrow lz4", [arrow_stream(table, "lz4") for table in tables], _arrow),
        Kind("arrow zstd", [arrow_stream(table, "zstd") for table in tables], _arrow),
        Kind("json", [json.dumps(records).encode()], lambda body: decode_json(body, RECORDS_MAX)),
        Kind("ndjson", [lines], lambda body: decode_ndjson(body, RECORDS_MAX, fields)),
        Kind("text", [lines], lambda body: decode_text(body, RECORDS_MAX, LineFields())),
    )


def _arrow(body: bytes) -> Draft:
    return decode_arrow(body, RECORDS_MAX, EXPANDED_BYTES_MAX)


def damaged(body: bytes, dice: random.Random) -> bytes:
    """`body` with one to eight changes: bytes changed, inserted, cut out, repeated, or numbers made huge. Half of the
    bodies keep their length, so that the frames of an Arrow stream still match and its contents are reached."""
    wounded = bytearray(body)
    wounds = dice.choice(((0, 4, 5), (0, 1, 2, 3, 4, 5)))
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        place = dice.randrange(len(wounded) + 1)
        match dice.choice(wounds):
            case 0:
                wounded[place : place + 1] = bytes([dice.randrange(256)])
            case 1:
                wounded[place:place] = dice.choice(NASTY)
            case 2:
                del wounded[place : place + dice.choice((1, 4, 8, 64))]
            case 3:
                wounded[place:place] = wounded[place : place + dice.choice((1, 8, 64))]
            case 4:
                aligned = place - place % 4
                wounded[aligned : aligned + 4] = dice.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
            case _:
                wounded[place : place + 1] = bytes(
                    [(wounded[place : place + 1] or b"\0")[0] ^ (1 << dice.randrange(8))]
                )
    return bytes(wounded)


def read_through(draft: Draft) -> None:
    """Read every byte of an accepted body."""
    draft.records.validate(full=True)
    assert 0 < draft.records.num_rows <= RECORDS_MAX
    draft.records.drop_columns("timestamp").to_pylist()
    draft.records.column("timestamp").cast(pa.int64()).to_pylist()
    assert draft.partitions is None or len(draft.partitions) == draft.records.num_rows


def main(seed: int, bodies: int) -> None:
    dice = random.Random(seed)
    taken: dict[str, int] = {}
    refused: dict[str, int] = {}
    for number in range(bodies):
        kind = dice.choice(kinds_once)
        body = damaged(dice.choice(kind.seeds), dice)
        try:
            read_through(kind.decode(body))
            taken[kind.name] = taken.get(kind.name, 0) + 1
        except Invalid:
            refused[kind.name] = refused.get(kind.name, 0) + 1
        except Exception as error:
            print(json.dumps({"number": number, "kind": kind.name, "body": body.hex(), "error": repr(error)[:500]}))
            sys.exit(1)
    print(json.dumps({"taken": taken, "refused": refused, "peak_bytes": pa.default_memory_pool().max_memory()}))


kinds_once = kinds()

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
