"""Writes a followed topic as JSON lines.

A line is a record, or it is empty: the heartbeat of a stream without records, which keeps proxies from closing it. With
`positions` there are lines without ``offset``, too: ``{"position": "0:41,1:7"}`` at the start, at every heartbeat and
at the end of a complete answer, and ``{"position": …, "problem": {…}}`` before a cut.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from tidelog.services.http.answers.record_json import RecordLines
from tidelog.services.http.answers.record_slices import last_offset, slices_of, written
from tidelog.services.http.media import Media
from tidelog.services.http.v1.followed_topic import FollowedTopic
from tidelog.services.http.v1.topic_position import position_text
from tidelog.storage.errors import TidelogError
from tidelog.wire.errors import problem_of

_EMPTY_LINE = b"\n"
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True)
class LineOptions:
    """The options of the client. `bounded`: the answer is complete when the log was read to its end."""

    base64: bool
    bounded: bool
    positions: bool


class FollowedLines:
    """A `RecordStream` of JSON lines."""

    media = Media.NDJSON

    def __init__(self, followed: FollowedTopic, options: LineOptions) -> None:
        self._followed = followed
        self._options = options
        self._sent = dict(followed.offsets)

    async def pieces(self) -> AsyncGenerator[bytes]:
        if self._options.positions:
            yield self._position_line()
        async with aclosing(self._followed.pages()) as pages:
            async for page in pages:
                if page is not None:
                    text = RecordLines(base64=self._options.base64, partition=page.partition)
                    for piece in slices_of(page.batches):
                        yield await written([piece], text.records)
                        self._sent[page.partition] = last_offset(piece) + 1
                    self._sent[page.partition] = page.next_offset
                elif self._is_complete():
                    break
                else:
                    yield self._position_line() if self._options.positions else _EMPTY_LINE
        if self._options.positions:
            yield self._position_line()

    def last_piece(self, error: TidelogError) -> bytes:
        return self._position_line(error) if self._options.positions else b""

    def _is_complete(self) -> bool:
        return self._options.bounded and self._followed.caught_up

    def _position_line(self, error: TidelogError | None = None) -> bytes:
        line: dict[str, object] = {"position": position_text(self._sent)}
        if error:
            line["problem"] = problem_of(error)
        return _ENCODER.encode(line) + b"\n"
