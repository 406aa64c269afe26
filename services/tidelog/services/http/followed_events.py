"""A followed topic as server-sent events: the id of each is the position in all partitions once it has been read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tidelog.services.http.answers.event_answer import HEARTBEAT, encode_cut_event, encode_event
from tidelog.services.http.answers.record_json import records_json
from tidelog.services.http.followed_topic import FollowedTopic, Page
from tidelog.services.http.media import Media
from tidelog.services.http.topic_position import position_text
from tidelog.storage.errors import TidelogError


class FollowedEvents:
    """A `RecordStream` of events."""

    media = Media.EVENTS

    def __init__(self, followed: FollowedTopic, *, base64: bool) -> None:
        self._followed = followed
        self._base64 = base64
        self._sent = dict(followed.offsets)

    async def pieces(self) -> AsyncGenerator[bytes]:
        async with aclosing(self._followed.pages()) as pages:
            async for page in pages:
                if page is None:
                    yield HEARTBEAT
                    continue
                yield self._page_events(page)
                self._sent[page.partition] = page.next_offset

    def last_piece(self, error: TidelogError) -> bytes:
        return encode_cut_event(position_text(self._sent), error)

    def _page_events(self, page: Page) -> bytes:
        seen, events = dict(self._sent), []
        for record in records_json(page.batches, base64=self._base64, partition=page.partition):
            seen[page.partition] = record.offset + 1
            events.append(encode_event(position_text(seen), record))
        return b"".join(events)
