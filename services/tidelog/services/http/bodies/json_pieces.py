"""Decodes a large JSON body of records piece by piece.

The parser decodes a document in one call, while no other thread runs, and its objects take up to 25 times the bytes of
a hostile document. So a large body is cut between records into pieces of about `PIECE_BYTES`. Each piece is decoded,
converted into columns and dropped before the next one: memory holds the objects of one piece.

A cut is guessed first: at a place that looks like the start of the first record. A wrong guess (inside a text, or
between two headers) leaves brackets or quotes open, so the piece cannot be decoded. From then on, cuts are found by a
scan of all brackets and quotes since the last cut, block by block (`record_end`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.wire.errors import Unreadable

T = TypeVar("T")

PIECE_BYTES = 1 << 18
SCAN_BYTES = 1 << 18
END_BYTES_MAX = 1 << 12
"""The size of the body's last bracket, brace and white space."""

_BEGIN = re.compile(rb'\s*\{\s*"records"\s*:\s*\[\s*')
_END = re.compile(rb"\s*\]\s*\}\s*\Z")
_FIRST_KEY = re.compile(rb'\{\s*("[a-z]{3,9}")')
_BETWEEN = rb"\}\s*,\s*(?=\{\s*%b)"
QUOTE, OPEN, CLOSE, _BACKSLASH = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[np.frombuffer(b'"', np.uint8)] = QUOTE
_KINDS[np.frombuffer(b"{[", np.uint8)] = OPEN
_KINDS[np.frombuffer(b"}]", np.uint8)] = CLOSE
_KINDS[np.frombuffer(b"\\", np.uint8)] = _BACKSLASH


def decoded_pieces(body: Body, decode: Callable[[bytes, int], list[T]]) -> Iterator[list[T]]:
    """The records of each piece, in order. `decode` gets a piece as a JSON array and the number of records before it,
    and raises `Invalid` if it cannot decode the piece. Raises `Unreadable` if the body does not begin and end as
    ``{"records": […]}``."""
    start, end = _bounds(body)
    guess, count = _guess(body, start), 0
    while start < end:
        cut = _guessed_cut(body, start, end, guess) if guess else _scanned_cut(body, start, end)
        try:
            records = decode(_array(body, start, cut[0]), count)
        except Invalid:
            if guess is None:
                raise
            guess = None  # the scan is slower, but always right
            continue
        yield records
        start, count = cut[1], count + len(records)


def holds_only_records(body: Body) -> bool:
    """Whether `decoded_pieces` can decode the body: it begins and ends as ``{"records": […]}``."""
    tail_start = max(0, len(body) - END_BYTES_MAX)
    return _BEGIN.match(body) is not None and _END.search(bytes(body[tail_start:])) is not None


def record_end(body: Body, start: int, end: int, least: int) -> int:
    """The end of the first record that ends at `least` or later; `end` if there is none. A record begins at `start`."""
    depth, in_text, escaped = 0, False, False
    for first in range(start, end, SCAN_BYTES):
        block = np.frombuffer(body[first : min(end, first + SCAN_BYTES)], np.uint8)
        places, kinds, escaped = marks(block, escaped=escaped)
        texts = (np.cumsum(kinds == QUOTE) + in_text) % 2 == 1
        steps = np.where(texts, 0, (kinds == OPEN).astype(np.int64) - (kinds == CLOSE))
        depths = np.cumsum(steps) + depth
        ends = places[(steps == -1) & (depths == 0) & (places + first + 1 >= least)]
        if len(ends):
            return first + int(ends[0]) + 1
        if len(places):
            depth, in_text = int(depths[-1]), bool(texts[-1])
    return end


def _bounds(body: Body) -> tuple[int, int]:
    """The places where the records begin and end."""
    begun = _BEGIN.match(body)
    tail_start = max(0, len(body) - END_BYTES_MAX)
    ended = _END.search(bytes(body[tail_start:]))
    if begun is None or ended is None or tail_start + ended.start() < begun.end():
        raise Unreadable(f'a body of more than {PIECE_BYTES} bytes begins with {{"records": [ and ends with ]}}')
    return begun.end(), tail_start + ended.start()


def _guess(body: Body, start: int) -> re.Pattern[bytes] | None:
    """A pattern that probably matches between two records, made from the start of the first one."""
    key = _FIRST_KEY.match(body, start)
    return re.compile(_BETWEEN % re.escape(key[1])) if key else None


def _guessed_cut(body: Body, start: int, end: int, guess: re.Pattern[bytes]) -> tuple[int, int]:
    """The end of a piece, and the start of the next one."""
    found = guess.search(body, start + PIECE_BYTES, end) if end - start > PIECE_BYTES else None
    return (found.start() + 1, found.end()) if found else (end, end)


def _scanned_cut(body: Body, start: int, end: int) -> tuple[int, int]:
    cut = record_end(body, start, end, start + PIECE_BYTES)
    if cut == end:
        return end, end
    comma = re.compile(rb"\s*,\s*").match(body, cut, end)
    if comma is None or comma.end() == end:
        raise Unreadable(f"the body is not JSON: a comma and a record are missing (byte {cut})")
    return cut, comma.end()


def _array(body: Body, start: int, end: int) -> bytes:
    return b"".join((b"[", memoryview(body)[start:end], b"]"))


def marks(block: npt.NDArray[np.uint8], *, escaped: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], bool]:
    """Places and kinds of the brackets and the quotes that are not escaped, and whether the byte after the block is
    escaped. `escaped`: whether its first byte is."""
    kinds = _KINDS[block]
    places = np.flatnonzero(kinds)
    if escaped and len(places) and places[0] == 0:
        places = places[1:]
    found = kinds[places]
    if not (found == _BACKSLASH).any():
        return places, found, False
    return _without_escaped(places, found, len(block))


def _without_escaped(
    places: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8], block_bytes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], bool]:
    """Every second backslash of a run is escaped. The byte after a run of odd length is escaped."""
    backslashes = places[kinds == _BACKSLASH]
    starts = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(backslashes))
    after = (backslashes[starts] + lengths)[lengths % 2 == 1]
    kept = (kinds != _BACKSLASH) & ~np.isin(places, after)
    return places[kept], kinds[kept], bool(len(after) and after[-1] == block_bytes)
