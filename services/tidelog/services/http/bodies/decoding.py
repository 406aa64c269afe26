"""Decodes request bodies within the memory for bodies; large ones in threads.

Memory that decoding needs is counted before it is used:

- JSON and lines: columns (`RECORD_BYTES` per record), and the objects of one piece of the body at a time
  (`PIECE_OBJECT_BYTES`; see `json_pieces`, `line_body`). Lines are counted before the first piece, JSON records after
  each piece; a body with too many records is refused then.
- Arrow: the columns are views of the body. Compressed buffers count with their expanded size.

At most `threads` large bodies are decoded at the same time. The others wait; their bodies stay counted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from tidelog.services.broker.api.produce import Draft
from tidelog.services.http.bodies.arrow_body import check_claims, decode_claimed
from tidelog.services.http.bodies.arrow_framing import StreamClaims, read_claims
from tidelog.services.http.bodies.body_reading import InFlightBody
from tidelog.services.http.bodies.draft_columns import RECORD_BYTES
from tidelog.services.http.bodies.json_body import decode_json
from tidelog.services.http.bodies.line_body import LineFields, count_bytes, decode_ndjson, decode_text
from tidelog.services.http.media import Media
from tidelog.storage.object_store import Body

T = TypeVar("T")
Decode: TypeAlias = Callable[[Body, int], Draft]
"""Decodes a body of at most so many records."""

DECODE_THREADS_MAX = 4
INLINE_BYTES_MAX = 1 << 18
INLINE_RECORDS_MAX = 10_000
"""A larger body is decoded in a thread. A smaller one holds the event loop for some ms at most."""
INLINE_ARROW_BYTES_MAX = 1 << 20
"""Larger, because decoding Arrow touches no single record."""
PIECE_OBJECT_BYTES = 8 << 20
"""The largest size of the objects of one piece."""


@dataclass(frozen=True)
class BodyForm:
    """How to decode a body. `expanded_bytes_max` bounds Arrow's compressed buffers."""

    media: Media
    fields: LineFields
    expanded_bytes_max: int


class Decoding:
    """`records_max`: ``request.max.records``."""

    def __init__(self, records_max: int) -> None:
        self.threads = min(DECODE_THREADS_MAX, os.cpu_count() or 1)
        self._records_max = records_max
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="tidelog-decode")
        self._places = asyncio.Semaphore(self.threads)

    async def draft(self, form: BodyForm, body: Body, held: InFlightBody) -> Draft:
        """Decode `body`. Raises `Overloaded` before anything is decoded, `Unreadable`, `Invalid`, `TooLarge`."""
        if form.media is Media.ARROW:
            return await self._arrow(form, body, held)
        mark = b"{" if form.media is Media.JSON else b"\n"
        return await self.records(partial(_decode, form), body, held, mark=mark)

    async def records(self, decode: Decode, body: Body, held: InFlightBody, *, mark: bytes = b"{") -> Draft:
        """Decode `body`, which is text, by `decode`. There is a `mark` in each of its records. Raises the errors of
        `decode`, and `Overloaded` before anything is decoded."""
        decode_now = partial(decode, body, self._records_max)
        if _is_small(body, mark):
            return decode_now()
        async with self._places:
            counted_bytes = added_bytes(len(body), self._records_max)
            held.grow(counted_bytes)
            try:
                return await self._in_thread(decode_now)
            finally:
                held.give_back(counted_bytes)

    async def _arrow(self, form: BodyForm, body: Body, held: InFlightBody) -> Draft:
        found = await self._by_size(len(body), partial(_views_or_claims, form, body, self._records_max))
        if isinstance(found, Draft):
            return found
        held.grow(found.expanded_bytes)
        return await self._by_size(found.expanded_bytes, partial(decode_claimed, body, found, self._records_max))

    async def _by_size(self, size_bytes: int, decode: Callable[[], T]) -> T:
        """Arrow of `size_bytes`, decoded here or in a thread."""
        if size_bytes <= INLINE_ARROW_BYTES_MAX:
            return decode()
        async with self._places:
            return await self._in_thread(decode)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def shutdown(self, *, wait: bool, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)


def added_bytes(body_bytes: int, records_max: int) -> int:
    """The most memory that decoding a large body of JSON or lines needs: a piece (a body of one record is one piece),
    its objects, and the columns. A record has at least two bytes of text."""
    return body_bytes + PIECE_OBJECT_BYTES + RECORD_BYTES * min(records_max, body_bytes // 2)


def _views_or_claims(form: BodyForm, body: Body, records_max: int) -> Draft | StreamClaims:
    """The draft of a stream that needs no memory beside `body`: one visit to a thread, not two. Otherwise its checked
    claims."""
    claims = read_claims(body)
    check_claims(claims, records_max, form.expanded_bytes_max)
    return claims if claims.expanded_bytes > len(body) else decode_claimed(body, claims, records_max)


def _decode(form: BodyForm, body: Body, records_max: int) -> Draft:
    if form.media is Media.JSON:
        return decode_json(body, records_max)
    if form.media is Media.NDJSON:
        return decode_ndjson(body, records_max, form.fields)
    return decode_text(body, records_max, form.fields)


def _is_small(body: Body, mark: bytes) -> bool:
    """Whether `body` is decoded on the event loop."""
    if len(body) <= INLINE_RECORDS_MAX or len(body) > INLINE_BYTES_MAX:
        return len(body) <= INLINE_RECORDS_MAX
    return count_bytes(body, mark) <= INLINE_RECORDS_MAX
