"""Where to start reading, as people write it: ``start | end | N | -N | @time``.

``start`` (or ``earliest``) is the oldest record, ``end`` (or ``latest``) what comes next, ``N`` an offset, ``-N`` that
many records before the end, ``@time`` the first record at or after a time (ISO 8601 or ms since 1970). The broker
resolves it; here it is only brought into the form of the interface's ``offset`` parameter.
"""

from __future__ import annotations

import re

from tidelog.storage.errors import Invalid

_WORDS = {"start": "earliest", "beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
_OFFSET = re.compile(r"-?\d{1,19}")


def checked_position(text: str | int) -> str:
    """`text` as the interface's ``offset`` takes it, else `Invalid`."""
    position = str(text).strip()
    if position in _WORDS:
        return _WORDS[position]
    if _OFFSET.fullmatch(position) or (position.startswith("@") and len(position) > 1):
        return position
    raise Invalid(f"{position!r} is no position: say start, end, N, -N or @time", field="offset")
