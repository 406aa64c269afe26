"""Generates a stream of shop and service events, the same for the same seed, for the demo and the benchmarks.

An event is one JSON object of about 376 bytes, keyed by its user. It compresses like real events: it has a unique id,
a UUID of version 7 (RFC 9562: its time, then 74 random bits, which no codec can remove); an id, a country and an agent
that repeat with the user; names from short lists. Kafka with zstd stores these events in 0.148 of their bytes.

`EventStream` makes events in chunks of Arrow columns. numpy draws the numbers and Arrow joins the text, so that no
Python runs per event: one core makes several hundred thousand events a second. Numbers in the JSON are integers
(microseconds, cents), so that sums can be compared exactly with those that Spark computes from the text.

    for chunk in EventStream(seed=7).chunks(1_000_000):
        chunk.values      # binary: the JSON
        chunk.keys        # binary: b"user-00421337"
        chunk.timestamps  # timestamp[ms, UTC], ascending
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.storage.records import TIMESTAMP

EPOCH_MS = 1_793_491_200_000  # 2026-11-01T00:00:00Z: the time of the first event
CHUNK_EVENTS = 2_000
USERS = 200_000

SERVICES = ["checkout", "payments", "search", "auth", "catalog", "shipping", "inventory", "gateway"]
HOSTS_PER_SERVICE = 6
HOSTS = [f"{name}-{n}.eu-central-1.internal" for name in SERVICES for n in range(HOSTS_PER_SERVICE)]
COUNTRIES = ["DE", "US", "FR", "IN", "BR", "JP", "GB", "NG"]
KINDS = ["page_view", "search", "add_to_cart", "purchase", "login"]
STATUSES = [200, 204, 404, 500, 503]
PATHS = ["/", "/search", "/cart", "/orders", "/login", "/products", "/account", "/help/shipping", "/products/reviews"]
METHODS = ["GET", "POST", "PUT"]
AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)",
    "okhttp/4.12.0",
]

_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint8).reshape(256, 2)
_DIGIT_QUADS = np.frombuffer(b"".join(b"%04d" % n for n in range(10_000)), dtype=np.uint8).reshape(10_000, 4)

Column: TypeAlias = "pa.Array[Any]"
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventChunk:
    """Some events as columns. The integer columns repeat the JSON, for computing expected results. `service` and
    `country` are positions in `SERVICES` and `COUNTRIES`."""

    keys: Column
    values: Column
    timestamps: Column
    service: Ints
    country: Ints
    status: Ints
    duration_us: Ints
    amount_cents: Ints

    def __len__(self) -> int:
        return len(self.values)


class EventStream:
    """Events from one seeded generator; iterate once. They begin at `began_ms`; the average distance between two is
    `step_ms`."""

    def __init__(self, seed: int, *, began_ms: int = EPOCH_MS, step_ms: float = 1.0) -> None:
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self._now_ms = float(began_ms)
        self._step_ms = step_ms

    def chunks(self, events: int) -> Iterator[EventChunk]:
        """`events` events in chunks of at most `CHUNK_EVENTS`."""
        for start in range(0, events, CHUNK_EVENTS):
            yield self._chunk(min(CHUNK_EVENTS, events - start))

    def _chunk(self, n: int) -> EventChunk:
        draw = self._draw
        exact_ms = self._now_ms + np.cumsum(draw.integers(0, 3, n)) * self._step_ms
        self._now_ms = float(exact_ms[-1])
        time_ms = exact_ms.astype(np.int64)
        user = (draw.random(n) ** 3 * USERS).astype(np.int64)  # a few users are busy, most are not
        kind = draw.choice(len(KINDS), n, p=[0.55, 0.2, 0.14, 0.06, 0.05])
        service = draw.choice(len(SERVICES), n, p=[0.1, 0.06, 0.2, 0.08, 0.28, 0.05, 0.08, 0.15])
        status = np.array(STATUSES)[draw.choice(len(STATUSES), n, p=[0.9, 0.04, 0.04, 0.015, 0.005])]
        duration_us = np.minimum(draw.exponential(35_000, n), 5e6).astype(np.int64) + 180
        amount_cents = np.where(kind == KINDS.index("purchase"), draw.integers(199, 60_000, n), 0)
        country = user % len(COUNTRIES)
        timestamps = pa.array(time_ms, TIMESTAMP)
        columns = (
            ('{"event_id":"', _uuids(draw, time_ms)),
            ('","time":"', _formatted(timestamps, "%Y-%m-%dT%H:%M:%SZ")),
            ('","type":"', _named(KINDS, kind)),
            ('","service":"', _named(SERVICES, service)),
            ('","host":"', _named(HOSTS, service * HOSTS_PER_SERVICE + draw.integers(0, HOSTS_PER_SERVICE, n))),
            ('","user":{"id":"', _user_ids(user)),
            ('","country":"', _named(COUNTRIES, country)),
            ('","agent":"', _named(AGENTS, user // len(COUNTRIES) % len(AGENTS))),
            ('"},"request":{"method":"', _named(METHODS, draw.choice(len(METHODS), n, p=[0.8, 0.17, 0.03]))),
            ('","path":"', _named(PATHS, draw.integers(0, len(PATHS), n))),
            ('","status":', _decimal(status)),
            (',"retry":', _decimal((draw.random(n) < 0.01).astype(np.int64))),
            (',"duration_us":', _decimal(duration_us)),
            ('},"amount_cents":', _decimal(amount_cents)),
        )
        return EventChunk(
            keys=_user_ids(user).cast(pa.binary()),
            values=_joined(columns, "}"),
            timestamps=timestamps,
            service=service,
            country=country,
            status=status,
            duration_us=duration_us,
            amount_cents=amount_cents,
        )


def _joined(columns: tuple[tuple[str, Column], ...], end: str) -> Column:
    parts: list[Any] = []
    for text, column in columns:
        parts += [text, column]
    joined: Column = pc.binary_join_element_wise(*parts, end, "")
    return joined.cast(pa.binary())


def _formatted(timestamps: Column, pattern: str) -> Column:
    texts: Column = pc.strftime(cast(Any, timestamps), format=pattern)
    return texts


def _named(names: list[str], index: Ints) -> Column:
    return pa.array(names).take(index)


def _decimal(numbers: Ints) -> Column:
    return pc.cast(pa.array(numbers), pa.string())


def _user_ids(user: Ints) -> Column:
    """`user-00421337`: fixed width, eight digits."""
    text = np.empty((len(user), 13), dtype=np.uint8)
    text[:, :5] = np.frombuffer(b"user-", dtype=np.uint8)
    text[:, 5:9] = _DIGIT_QUADS[user // 10_000]
    text[:, 9:] = _DIGIT_QUADS[user % 10_000]
    return _fixed_width_text(text)


def _uuids(draw: np.random.Generator, time_ms: Ints) -> Column:
    """UUIDs of version 7 (RFC 9562) as text: 48 bits of milliseconds, 74 random bits, version and variant."""
    n = len(time_ms)
    raw = np.frombuffer(draw.bytes(16 * n), dtype=np.uint8).reshape(n, 16).copy()
    raw[:, :6] = time_ms.astype(">u8").view(np.uint8).reshape(n, 8)[:, 2:]
    raw[:, 6] = 0x70 | raw[:, 6] & 0x0F
    raw[:, 8] = 0x80 | raw[:, 8] & 0x3F
    digits = _HEX_PAIRS[raw].reshape(n, 32)
    text = np.full((n, 36), ord("-"), dtype=np.uint8)
    for first, end, dashes in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
        text[:, first + dashes : end + dashes] = digits[:, first:end]
    return _fixed_width_text(text)


def _fixed_width_text(characters: npt.NDArray[np.uint8]) -> Column:
    """A matrix of ASCII characters, one row per string, as an Arrow column without a copy."""
    n, width = characters.shape
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets.data), pa.py_buffer(characters.data)])
