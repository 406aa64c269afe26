"""Writes a followed topic as server-sent events, whose ids are positions in all partitions.

A position holds an offset of every partition, so it would be too large for every event of a topic with many partitions.

- Up to `PLAIN_PARTITIONS_MAX` partitions, each event has an id. A client that resumes misses and repeats nothing.
- With more partitions, some events have an id: the last one of a slice, when `ID_SHARE` times the size of an id was
  sent since the last id, or `ID_EVERY_S` have passed. If no record carries an id for so long, an event ``position``
  does. A client that resumes from the last id misses nothing, and may get the records since then again. A cut by the
  broker itself (`last_piece`) always has an id, so it repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from tidelog.services.http.answers.event_answer import (
    HEARTBEAT,
    encode_cut_event,
    encode_event,
    encode_position_event,
)
from tidelog.services.http.answers.record_json import json_records
from tidelog.services.http.answers.record_slices import Group, last_offset, slices_of, written
from tidelog.services.http.media import Media
from tidelog.services.http.v1.followed_topic import FollowedTopic, Page
from tidelog.services.http.v1.topic_position import PLAIN_PARTITIONS_MAX, position_text
from tidelog.storage.errors import TidelogError

ID_SHARE = 4
"""Ids are at most a fifth of the bytes of a busy stream."""
ID_EVERY_S = 1.0
PLACE_BYTES = 4
"""The least size of an id that is counted, per partition: writing an id takes time even if it is short."""


class FollowedEvents:
    """A `RecordStream` of events."""

    media = Media.EVENTS

    def __init__(self, followed: FollowedTopic, *, base64: bool) -> None:
        self._followed = followed
        self._base64 = base64
        self._beat_s = followed.beat_s
        self._sent = dict(followed.offsets)
        self._id_bytes = 0
        self._bytes_since_id = 0
        self._id_at_s = 0.0

    async def pieces(self) -> AsyncGenerator[bytes]:
        async with aclosing(self._followed.pages()) as pages:
            async for page in pages:
                if page is None:
                    yield self._position_event() if self._bytes_since_id else HEARTBEAT
                else:
                    async with aclosing(self._page_events(page)) as pieces:
                        async for piece in pieces:
                            yield piece
                self._followed.beat_s = ID_EVERY_S if self._bytes_since_id else self._beat_s

    def last_piece(self, error: TidelogError) -> bytes:
        return encode_cut_event(position_text(self._sent), error)

    async def _page_events(self, page: Page) -> AsyncGenerator[bytes]:
        """The events of `page`, slice by slice. `_sent` is updated after each slice."""
        slices = list(slices_of(page.batches))
        for place, piece in enumerate(slices):
            next_offset = page.next_offset if place == len(slices) - 1 else last_offset(piece) + 1
            if len(self._sent) <= PLAIN_PARTITIONS_MAX:
                write = partial(_events_with_ids, partition=page.partition, sent=self._sent, base64=self._base64)
                yield await written([piece], write)
            else:
                event_id = self._id_after(page.partition, next_offset, piece.nbytes)
                write = partial(_events, partition=page.partition, last_id=event_id, base64=self._base64)
                events = await written([piece], write)
                yield events
                self._bytes_since_id = 0 if event_id else self._bytes_since_id + len(events)
            self._sent[page.partition] = next_offset

    def _id_after(self, partition: int, next_offset: int, size_bytes: int) -> str | None:
        """The position after `partition` was read up to `next_offset`, if an id is due."""
        now_s = asyncio.get_running_loop().time()
        id_bytes = max(self._id_bytes, PLACE_BYTES * len(self._sent))
        if self._bytes_since_id + size_bytes < ID_SHARE * id_bytes and now_s < self._id_at_s + ID_EVERY_S:
            return None
        event_id = position_text({**self._sent, partition: next_offset})
        self._id_at_s, self._id_bytes = now_s, len(event_id)
        return event_id

    def _position_event(self) -> bytes:
        self._bytes_since_id = 0
        return encode_position_event(position_text(self._sent))


def _events(group: Group, *, partition: int, last_id: str | None, base64: bool) -> bytes:
    """Events of which only the last one has an id."""
    records = list(json_records(group, base64=base64, partition=partition))
    events = [encode_event(None, record) for record in records[:-1]]
    events.append(encode_event(last_id, records[-1]))
    return b"".join(events)


def _events_with_ids(group: Group, *, partition: int, sent: dict[int, int], base64: bool) -> bytes:
    seen, events = dict(sent), []
    for record in json_records(group, base64=base64, partition=partition):
        seen[partition] = record.offset + 1
        events.append(encode_event(position_text(seen), record))
    return b"".join(events)
