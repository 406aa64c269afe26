"""The exit codes of the command, for scripts. docs/cli.md explains them."""

from __future__ import annotations

from tidelog.storage.errors import (
    Conflict,
    Corrupt,
    Fenced,
    Invalid,
    NotFound,
    TidelogError,
    Unavailable,
)

OK = 0
FAILED = 1  # for a reason that has no code below
USAGE = 2  # the command line or the input is wrong
UNAVAILABLE = 3
NOT_FOUND = 4
CONFLICT = 5
DAMAGED = 6
INTERRUPTED = 130
TERMINATED = 143

_BY_ERROR: tuple[tuple[type[TidelogError], int], ...] = (
    (Invalid, USAGE),
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Fenced, UNAVAILABLE),
    (Unavailable, UNAVAILABLE),
    (Corrupt, DAMAGED),
)


def exit_code_of(error: TidelogError) -> int:
    """The code for `error`, by its class."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)
