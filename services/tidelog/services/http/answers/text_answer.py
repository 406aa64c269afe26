"""Fetched records as text. A small answer is one body; a large one is written and sent group by group.

A group is written in a thread, and the next one only when the socket has taken it: memory holds the text of one group,
and no group holds the event loop. A large answer has no Content-Length. If its client leaves, nothing more is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.http.answers.json_answer import JsonText
from tidelog.services.http.answers.record_slices import INLINE_BYTES_MAX, INLINE_RECORDS_MAX, groups_of

Group = Sequence[pa.RecordBatch]


async def text_answer(
    batches: Sequence[pa.RecordBatch], text: JsonText, headers: Mapping[str, str], media_type: str
) -> Response:
    """`batches` as `text` writes them."""
    if _is_small(batches):
        return Response(text.head + text.records(batches) + text.tail, headers=headers, media_type=media_type)
    groups = list(groups_of(batches))
    if len(groups) > 1:
        return GroupedAnswer(groups, text, headers, media_type)
    body = b"".join((text.head, *[await _written(group, text) for group in groups], text.tail))
    return Response(body, headers=headers, media_type=media_type)


class GroupedAnswer(Response):
    """See the module's docstring."""

    def __init__(self, groups: Sequence[Group], text: JsonText, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._groups = groups
        self._text = text

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(_client_left(receive))
        try:
            before = self._text.head
            for group in self._groups:
                piece = before + await _written(group, self._text)
                if leaving.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                before = self._text.between
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": self._text.tail, "more_body": False})


def _is_small(group: Group) -> bool:
    """Whether the event loop may write it."""
    few = sum(piece.num_rows for piece in group) <= INLINE_RECORDS_MAX
    return few and sum(piece.nbytes for piece in group) <= INLINE_BYTES_MAX


async def _written(group: Group, text: JsonText) -> bytes:
    return text.records(group) if _is_small(group) else await asyncio.to_thread(text.records, group)


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
