"""The exit codes of the command, for scripts. docs/cli.md has the same table."""

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
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
NOT_FOUND = 4
CONFLICT = 5
DAMAGED = 6
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    OK: "done; also if the reader of a pipe closed it early",
    FAILED: "refused, or failed for a reason that has no code below",
    USAGE: "the command line or the input is wrong, or a confirmation is missing: change it",
    UNAVAILABLE: "no broker or store answers, or it is overloaded: try again",
    NOT_FOUND: "there is no such topic, partition or object",
    CONFLICT: "it exists already, or another writer was first",
    DAMAGED: "an object of the bucket is damaged, or `bucket verify` or `attest` found an error",
    INTERRUPTED: "interrupted by Ctrl-C; `serve` and `compactor` stop gracefully instead, with 0",
    TERMINATED: "ended by SIGTERM; `serve` and `compactor` stop gracefully instead, with 0",
}

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
