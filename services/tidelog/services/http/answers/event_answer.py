"""Records as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): ``id:`` where to go
on after this one, ``data:`` its JSON on one line."""

from __future__ import annotations

from tidelog.services.http.answers.problems import problem_of
from tidelog.services.http.answers.record_json import ENCODER, RecordJson
from tidelog.storage.errors import TidelogError, Unavailable

HEARTBEAT = b": waiting\n\n"
"""A comment: it keeps proxies from closing an idle stream, and lets a broken connection be noticed."""


def encode_event(event_id: str | None, record: RecordJson) -> bytes:
    """One event. msgspec writes no newline inside a document, so `data` is one line."""
    return b"%bdata: %b\n\n" % (_id_line(event_id), ENCODER.encode(record))


def encode_position_event(event_id: str) -> bytes:
    """An event ``position``: its id covers all records that were sent before it."""
    return b"event: position\n%bdata: {}\n\n" % _id_line(event_id)


def encode_cut_event(event_id: str | None, error: TidelogError) -> bytes:
    """The last event of a stream that `error` cuts: ``end`` if the client can go on at once by connecting again, else
    ``problem``. Its data is a problem. `event_id`: the position after all that was sent; None if nothing was."""
    name = b"end" if isinstance(error, Unavailable) else b"problem"
    return b"event: %b\n%bdata: %b\n\n" % (name, _id_line(event_id), problem_of(error).body())


def _id_line(event_id: str | None) -> bytes:
    return b"" if event_id is None else b"id: %b\n" % event_id.encode()
