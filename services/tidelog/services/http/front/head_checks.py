"""The checks of a request's head that need no state.

- **Connection.** A request over a connection beyond ``connections.max`` is refused, unless it asks about the broker
  itself: otherwise clients that hold all connections could make a supervisor kill a healthy broker.
- **Path.** A path with an encoded slash (``%2F``) is refused. The server decodes paths, so
  ``/v1/topics/secret%2Fpartitions%2F0/records`` would look like a call on another topic. No name has a slash.
- **Content type.** A POST that an HTML form could send is refused, because a browser sends it to any address without a
  preflight request (https://fetch.spec.whatwg.org/#cors-safelisted-request-header). A POST without a body needs a
  content type, too, except on the paths of consumer instances, where programs commit without a body. ``text/plain`` is
  a media type of records, so programs may send it. A browser, which is recognized by `Origin` or the `Sec-Fetch-`
  headers, may do neither. Browsers always send a preflight request for PATCH and DELETE.
- **Peer.** A request with `Tidelog-Peer` must prove that a broker of this cluster sent it (`peers.proof`). A proof that
  fails is refused instead of being treated as a client's request: two brokers whose secrets or clocks differ would
  forward a request to each other again and again.
"""

from __future__ import annotations

from starlette.types import Scope

from tidelog.services.http.front.host_check import PROBES
from tidelog.services.http.front.request_context import named_principal
from tidelog.services.http.front.request_head import RequestHead
from tidelog.services.http.listener.connection_bounds import is_beyond
from tidelog.services.http.media import BODY_MEDIA, Media
from tidelog.services.peers.proof import PEER_HEADER, PeerProofs
from tidelog.storage.errors import Overloaded, UnsupportedMedia
from tidelog.wire.errors import PeerUnproved, Unreadable

_ABOUT_THE_BROKER = frozenset({*PROBES, "/metrics"})
_RETRY_AFTER_S = 5.0
_FORM_TYPES = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data"})
_CONSUMERS = "/consumers/"
_TEXT = Media.TEXT.value.encode()
_PEER = PEER_HEADER.lower().encode()


def check_connection(scope: Scope) -> None:
    """Raises `Overloaded`."""
    if is_beyond(scope) and scope["path"] not in _ABOUT_THE_BROKER:
        raise Overloaded(
            "all connections of the broker are in use (connections.max): the request was not applied, send it again "
            "later",
            retry_after_s=_RETRY_AFTER_S,
        )


def check_path(head: RequestHead) -> None:
    """Raises `Unreadable`."""
    if b"%" not in head.raw_path:
        return
    for segment in head.raw_path.split(b"/"):
        if b"%2f" in segment.lower():
            raise Unreadable(
                f"the path segment {segment.decode('latin-1')[:80]!r} has an encoded slash: no name has a slash",
                field="path",
            )


def check_content_type(head: RequestHead) -> None:
    """Raises `UnsupportedMedia`."""
    if head.method != "POST":
        return
    content_type = head.headers.get(b"content-type")
    if content_type is None:
        if _may_be_empty(head):
            return
        raise _unsupported(head, "a POST needs a Content-Type, even without a body")
    kind = content_type.partition(b";")[0].strip().lower()
    if kind in _FORM_TYPES or (kind == _TEXT and not _may_be_text(head)):
        raise _unsupported(
            head, f"Content-Type {kind.decode('latin-1')} is refused, because any web page could send it"
        )


def proved_peer(head: RequestHead, proofs: PeerProofs) -> bool:
    """Whether a peer sent the request. Raises `PeerUnproved`."""
    proof = head.headers.get(_PEER)
    if proof is None:
        return False
    if fault := proofs.fault(proof.decode("latin-1"), head.method, head.target, named_principal(head)):
        raise PeerUnproved(f"{PEER_HEADER} does not prove that a broker of this cluster sent the request: {fault}")
    return True


def _may_be_text(head: RequestHead) -> bool:
    return _takes_records(head) and not _from_browser(head)


def _may_be_empty(head: RequestHead) -> bool:
    """Programs for Kafka's REST interface commit without a body and without a content type."""
    empty = b"transfer-encoding" not in head.headers and head.headers.get(b"content-length", b"0") == b"0"
    return empty and head.path.startswith(_CONSUMERS) and not _from_browser(head)


def _from_browser(head: RequestHead) -> bool:
    return b"origin" in head.headers or b"sec-fetch-site" in head.headers


def _takes_records(head: RequestHead) -> bool:
    return head.path.endswith("/records")


def _unsupported(head: RequestHead, reason: str) -> UnsupportedMedia:
    known = tuple(media.value for media in (BODY_MEDIA if _takes_records(head) else (Media.JSON,)))
    return UnsupportedMedia(f"{reason}: send {' or '.join(known)}", known=known)
