"""Records as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): ``id:`` where to go
on after this one, ``data:`` its JSON on one line."""

from __future__ import annotations

from tidelog.services.http.answers.record_json import ENCODER, RecordJson
from tidelog.services.http.problems import Problem

HEARTBEAT = b": waiting\n\n"
"""A comment: it keeps proxies from closing an idle stream, and lets a broken connection be noticed."""


def encode_event(event_id: str, record: RecordJson) -> bytes:
    """One event. msgspec writes no newline inside a document, so `data` is one line."""
    return b"id: %b\ndata: %b\n\n" % (event_id.encode(), ENCODER.encode(record))


def encode_problem_event(problem: Problem) -> bytes:
    """What ended a stream early, as an event of the name ``problem``."""
    return b"event: problem\ndata: %b\n\n" % problem.body()
