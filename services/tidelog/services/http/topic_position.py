"""A position in a whole topic as text: ``0:41,1:7`` names the next offset of partitions 0 and 1.

Clients get it as the id of events, in the header ``Tidelog-Position`` and in the position lines of JSON lines. They
send it back in ``Last-Event-ID``. If a position names a partition twice, the later offset counts: a client may append
what it has read since to a position that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.services.http.problems import Unreadable

POSITION_HEADER = "Tidelog-Position"
"""In an answer that follows a topic: where each partition begins."""
POSITION_HEADER_BYTES_MAX = 8_000
"""A longer position is left out of the head: proxies refuse heads of about 16 KB."""

_POSITION = re.compile(r"[0-9]{1,10}:[0-9]{1,18}(,[0-9]{1,10}:[0-9]{1,18})*")


def position_text(offsets: Mapping[int, int]) -> str:
    """`offsets`: the next offset of each partition."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def parse_position_text(text: str, name: str) -> dict[int, int]:
    """The next offsets that `text` names, by partition. `Unreadable` names the header `name`."""
    if not _POSITION.fullmatch(text):
        raise Unreadable(f"{name} is partition:offset,… as the answer carried it, not {text[:80]!r}", field=name)
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def position_headers(offsets: Mapping[int, int]) -> dict[str, str]:
    """The header that tells where a follow begins; none if it would be too long."""
    text = position_text(offsets)
    return {POSITION_HEADER: text} if len(text) <= POSITION_HEADER_BYTES_MAX else {}
