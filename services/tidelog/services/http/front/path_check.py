"""A path is split at the slashes that came as slashes. An encoded one (``%2F``) is part of a name, and no name has one.

The server hands on the path with all escapes undone, so ``/v1/topics/secret%2Fpartitions%2F0/records`` looks there as
``/v1/topics/secret/partitions/0/records`` does: another call, on another topic. So such a path is refused as a whole.
What is left can be split by its decoded slashes, which are the same as those that came.
"""

from __future__ import annotations

from tidelog.services.http.answers.verdicts import Unreadable
from tidelog.services.http.front.request_head import RequestHead


def check_path(head: RequestHead) -> None:
    """Raises `Unreadable` if a segment of the path has an encoded slash."""
    if b"%" not in head.raw_path:
        return
    for segment in head.raw_path.split(b"/"):
        if b"%2f" in segment.lower():
            raise Unreadable(
                f"the path segment {segment.decode('latin-1')[:80]!r} has an encoded slash, which no name has",
                field="path",
            )
