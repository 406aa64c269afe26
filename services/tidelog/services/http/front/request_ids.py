"""The id of a request: the client's own if it is a sane one, else one that is made here.

A made id is a random prefix of this process and a count, which is unique and costs less than a random id a request.
"""

from __future__ import annotations

import itertools
import re

from tidelog.storage.runtime import Entropy

REQUEST_ID_HEADER = "X-Request-Id"
CLIENT_ID_HEADER = "Tidelog-Client-Id"
ID_CHARACTERS_MAX = 128
_SANE = re.compile(rb"[!-~]{1,%d}" % ID_CHARACTERS_MAX)
_PREFIX_DIGITS = 12


class RequestIds:
    """Takes or makes ids."""

    def __init__(self, entropy: Entropy) -> None:
        self._prefix = entropy.new_id()[:_PREFIX_DIGITS]
        self._count = itertools.count(1)

    def of(self, given: bytes | None) -> str:
        """`given` if it is sane, else a new id."""
        return sane_id(given) or f"{self._prefix}-{next(self._count)}"


def sane_id(given: bytes | None) -> str:
    """`given` as text if it is printable ASCII without spaces and at most `ID_CHARACTERS_MAX` long, else empty."""
    return given.decode("ascii") if given is not None and _SANE.fullmatch(given) else ""
