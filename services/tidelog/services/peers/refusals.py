"""A peer's refusal as the error it was: `http.verdicts` read backwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.services.http.answers.verdicts import Verdict, error_told
from tidelog.storage.errors import TidelogError

RETRY_AFTER_S = 1.0
"""Where the answer does not say."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> TidelogError:
    """The error that an answer of `status` (400 and above) tells."""
    try:
        members = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        members = {}
    verdict = Verdict(status, str(members.get("code", "")))
    detail = str(members.get("detail", f"a peer answered {status}"))
    return error_told(verdict, detail, members, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else RETRY_AFTER_S
