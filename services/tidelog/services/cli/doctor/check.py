"""The outcome of one check of `tidelog doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal

from tidelog.storage.errors import Denied, TidelogError

Status = Literal["ok", "warning", "failed", "skipped"]
CHECK_S_MAX = 15.0
"""A check that takes longer has failed."""
STORE_PERMISSIONS = "check the credentials and the permissions that docs/stores.md lists"


@dataclass(frozen=True)
class Check:
    """`found`: the fact. `advice`: what to do, empty if there is nothing to do."""

    name: str
    status: Status
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, "warning", found, advice)


def failed(name: str, found: str, advice: str) -> Check:
    return Check(name, "failed", found, advice)


def skipped(name: str, found: str) -> Check:
    return Check(name, "skipped", found)


async def in_time(
    name: str, checking: Awaitable[Sequence[Check]], advice: str, *, denied: str = STORE_PERMISSIONS
) -> Sequence[Check]:
    """The checks, or one failed check if they raise an error of Tidelog or take more than `CHECK_S_MAX`. `denied`: the
    advice if credentials are refused."""
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            return await checking
    except TimeoutError:
        return [failed(name, f"no answer within {CHECK_S_MAX:g} s", advice)]
    except Denied as error:
        return [failed(name, str(error), denied)]
    except TidelogError as error:
        return [failed(name, str(error), advice)]
