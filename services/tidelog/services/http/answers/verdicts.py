"""Which status and code tells which error, and which error an answer of that status and code stands for.

One table for both ways, so that they cannot drift: a broker that is asked reads it forwards (`problems`), a broker that
asks a peer reads it backwards (`error_told`). It is read from the most special class to the least; a verdict that two
classes share tells the later one.

The errors that only HTTP knows are here as well: a body that cannot be read at all (`Unreadable`, where `Invalid` is
one that can be read and is not allowed), an answer nobody here can give (`NotAcceptable`), a body that came too
slowly (`BodyTimeout`), a client that has left (`ClientGone`, whose answer nobody will see), and the refusals of the
front (`HostRefused`, `OriginRefused`, `PeerUnproved`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.storage import errors

EXTRA_FIELDS = (
    "field",
    "record",
    "log_start_offset",
    "high_watermark",
    "limit_name",
    "limit_bytes",
    "known",
    "first_offset",
    "next_offset",
    "expected_sequence",
    "current_epoch",
    "committed",
    "leader",
)
"""Attributes of errors that a problem carries under the same name."""


class Unreadable(errors.Invalid):
    """A body or a parameter that cannot be read."""


class NotAcceptable(errors.UnsupportedMedia):
    """No media type of the request's Accept can be given; `known` lists those that can."""


class BodyTimeout(errors.TidelogError):
    """The body did not arrive within ``request.read.timeout.ms``."""


class ClientGone(errors.TidelogError):
    """The client closed the connection before it had its answer."""


class HostRefused(errors.TidelogError):
    """The request calls this broker by a name that is not its own."""


class OriginRefused(errors.TidelogError):
    """A web page of an origin that is not allowed sent the request."""


class PeerUnproved(errors.TidelogError):
    """The request claims to come from a broker of this cluster and does not prove it."""


@dataclass(frozen=True)
class Verdict:
    """How a kind of error is told."""

    status: int
    code: str


VERDICTS: tuple[tuple[type[Exception], Verdict], ...] = (
    (Unreadable, Verdict(400, "invalid")),
    (NotAcceptable, Verdict(406, "not_acceptable")),
    (HostRefused, Verdict(403, "host_not_allowed")),
    (OriginRefused, Verdict(403, "origin_not_allowed")),
    (PeerUnproved, Verdict(401, "peer_unproved")),
    (BodyTimeout, Verdict(408, "request_timeout")),
    (ClientGone, Verdict(400, "client_gone")),
    (errors.OutOfRange, Verdict(416, "out_of_range")),
    (errors.TooLarge, Verdict(413, "too_large")),
    (errors.UnsupportedMedia, Verdict(415, "unsupported_media_type")),
    (errors.Invalid, Verdict(422, "invalid")),
    (errors.NoSuchObject, Verdict(503, "unavailable")),
    (errors.NotFound, Verdict(404, "not_found")),
    (errors.AlreadyExists, Verdict(409, "already_exists")),
    (errors.OffsetConflict, Verdict(409, "offset_conflict")),
    (errors.SequenceConflict, Verdict(409, "sequence_conflict")),
    (errors.ProducerFenced, Verdict(409, "producer_fenced")),
    (errors.Conflict, Verdict(409, "conflict")),
    (errors.Fenced, Verdict(503, "fenced")),
    (errors.Denied, Verdict(503, "denied")),
    (errors.NotLeader, Verdict(503, "not_leader")),
    (errors.LeaderUnknown, Verdict(503, "leader_unknown")),
    (errors.Overloaded, Verdict(503, "overloaded")),
    (errors.Unavailable, Verdict(503, "unavailable")),
    (errors.Corrupt, Verdict(500, "corrupt")),
)
INTERNAL = Verdict(500, "internal")

_KINDS: dict[Verdict, type[Exception]] = {verdict: kind for kind, verdict in VERDICTS}


def verdict_on(error: type[Exception]) -> Verdict:
    """How errors of this class are told; `INTERNAL` if they are not Tidelog's own."""
    return next((verdict for kind, verdict in VERDICTS if issubclass(error, kind)), INTERNAL)


def error_told(verdict: Verdict, detail: str, extra: Mapping[str, Any], retry_after_s: float) -> errors.TidelogError:
    """The error that a problem of `verdict` tells; `extra` are its members beyond those of RFC 9457. A verdict that is
    not in the table (a proxy's, a newer broker's) is `Unavailable`: nothing is known of the outcome."""
    kind = _KINDS.get(verdict, errors.Unavailable)
    if kind is errors.Corrupt:
        return _corrupt(detail, extra)
    members = {**extra, "retry_after_s": retry_after_s, "known": tuple(extra.get("known", ()))}
    try:
        error = kind(detail, **_arguments(kind, members))
    except TypeError:
        return errors.Unavailable(f"the answer {verdict.code} lacks what it has to say: {detail}")
    if isinstance(error, errors.Fenced | errors.Denied | errors.Unavailable):
        error.committed = tuple(extra.get("committed", ()))
    assert isinstance(error, errors.TidelogError)
    return error


def _corrupt(detail: str, extra: Mapping[str, Any]) -> errors.Corrupt:
    """With the offsets that are lost, if it tells them."""
    name = str(extra.get("object", "an object"))
    reason = detail.removeprefix(f"{name}: ")
    first_offset, next_offset = extra.get("first_offset"), extra.get("next_offset")
    if first_offset is None or next_offset is None:
        return errors.Corrupt(name, reason)
    return errors.RecordsLost(name, reason, first_offset=int(first_offset), next_offset=int(next_offset))


def _arguments(kind: type[Exception], members: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `members` that `kind` is made with; a class names them as a problem does."""
    made: Any = kind  # the signature of a class without an __init__ of its own cannot be asked for
    parameters = inspect.signature(made.__init__).parameters.values()
    return {p.name: members[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in members}
