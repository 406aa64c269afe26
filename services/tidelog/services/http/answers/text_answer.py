"""Answers a fetch with text. A small answer is one body; a large one is written and sent group by group.

The next group is written when the socket has taken the previous one, so memory holds the text of one group. A large
answer has no Content-Length. If its client leaves, no further group is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.http.answers.record_json import JsonText
from tidelog.services.http.answers.record_slices import Group, groups_of, is_small, written
from tidelog.services.http.listener.waiting_requests import client_left


async def text_answer(
    batches: Sequence[pa.RecordBatch], text: JsonText, headers: Mapping[str, str], media_type: str
) -> Response:
    """The answer with `batches` as `text` writes them."""
    if is_small(batches):
        return Response(text.head + text.records(batches) + text.tail, headers=headers, media_type=media_type)
    groups = list(groups_of(batches))
    if len(groups) > 1:
        return GroupedAnswer(groups, text, headers, media_type)
    body = b"".join((text.head, *[await written(group, text.records) for group in groups], text.tail))
    return Response(body, headers=headers, media_type=media_type)


class GroupedAnswer(Response):
    """Writes and sends `groups` one by one."""

    def __init__(self, groups: Sequence[Group], text: JsonText, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._groups = groups
        self._text = text

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(client_left(receive))
        try:
            before = self._text.head
            for group in self._groups:
                piece = before + await written(group, self._text.records)
                if leaving.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                before = self._text.between
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": self._text.tail, "more_body": False})
