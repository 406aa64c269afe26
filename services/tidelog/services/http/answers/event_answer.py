"""Writes server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): ``id:`` is the position
after the event, ``data:`` is JSON on one line."""

from __future__ import annotations

from tidelog.services.http.answers.record_json import ENCODER
from tidelog.storage.errors import TidelogError, Unavailable
from tidelog.wire.errors import problem_of
from tidelog.wire.records import JsonRecord

HEARTBEAT = b": waiting\n\n"
"""A comment. It keeps proxies from closing an idle stream, and it makes a broken connection fail."""


def encode_event(event_id: str | None, record: JsonRecord) -> bytes:
    """The event of a record. msgspec writes no newline inside a document, so its data is one line."""
    return b"%bdata: %b\n\n" % (_id_line(event_id), ENCODER.encode(record))


def encode_position_event(event_id: str) -> bytes:
    """An event ``position``. Its id covers all records that were sent before it."""
    return b"event: position\n%bdata: {}\n\n" % _id_line(event_id)


def encode_cut_event(event_id: str | None, error: TidelogError) -> bytes:
    """The last event of a stream that `error` ends: ``end`` if the client can continue at once with a new connection,
    otherwise ``problem``. Its data is a problem. `event_id`: the position after all that was sent; None if nothing
    was."""
    name = b"end" if isinstance(error, Unavailable) else b"problem"
    return b"event: %b\n%bdata: %b\n\n" % (name, _id_line(event_id), ENCODER.encode(problem_of(error)))


def _id_line(event_id: str | None) -> bytes:
    return b"" if event_id is None else b"id: %b\n" % event_id.encode()
