"""A change needs a content type that no web form can send.

A browser sends a POST of a foreign page without asking this broker first if its type is one that HTML forms have
(https://fetch.spec.whatwg.org/#cors-safelisted-request-header), or if it has none. So a POST needs another type, a
POST without a body too: ``application/json``. PATCH and DELETE are asked for first, whatever they carry.

``text/plain`` is a media type of records, and programs may send it. A browser may not: it is known by its `Origin`, or
by the `Sec-Fetch-` headers of newer ones.
"""

from __future__ import annotations

from tidelog.services.http.front.request_head import RequestHead
from tidelog.services.http.media import BODY_MEDIA, Media
from tidelog.storage.errors import UnsupportedMedia

_OF_FORMS = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data"})
_TEXT = Media.TEXT.value.encode()


def check_change(head: RequestHead) -> None:
    """Raises `UnsupportedMedia` for a POST that a form could have sent."""
    if head.method != "POST":
        return
    content_type = head.headers.get(b"content-type")
    if content_type is None:
        raise _refusal(head, "a POST needs a Content-Type, without a body too")
    kind = content_type.partition(b";")[0].strip().lower()
    if kind in _OF_FORMS or (kind == _TEXT and not _may_be_text(head)):
        raise _refusal(head, f"Content-Type {kind.decode('latin-1')} is refused, since any web page could send it")


def _may_be_text(head: RequestHead) -> bool:
    from_browser = b"origin" in head.headers or b"sec-fetch-site" in head.headers
    return _takes_records(head) and not from_browser


def _takes_records(head: RequestHead) -> bool:
    return head.path.endswith("/records")


def _refusal(head: RequestHead, why: str) -> UnsupportedMedia:
    known = tuple(media.value for media in (BODY_MEDIA if _takes_records(head) else (Media.JSON,)))
    return UnsupportedMedia(f"{why}: send {' or '.join(known)}", known=known)
