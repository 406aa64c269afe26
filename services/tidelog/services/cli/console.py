"""Input and output of commands. The answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from tidelog.services.cli.exit_codes import FAILED
from tidelog.storage.errors import Invalid

T = TypeVar("T")

_SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")


def complain(message: str) -> None:
    """Print a line on stderr."""
    mark = "\x1b[31mtidelog:\x1b[0m" if sys.stderr.isatty() else "tidelog:"
    print(f"{mark} {message}", file=sys.stderr)


def check_may_ask(yes: bool) -> None:
    """Raises `Invalid` if stdin is no terminal and --yes was not given."""
    if not yes and not sys.stdin.isatty():
        raise Invalid("stdin is no terminal, so the command cannot ask for a confirmation: add --yes", field="yes")


def confirm(question: str, *, otherwise: str = "nothing was deleted") -> None:
    """Ask on the terminal. Any answer but yes ends the command with code 1, and says `otherwise`."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain(otherwise)
        raise SystemExit(FAILED)


def print_answer(answer: T, show: Callable[[T], None], *, as_json: bool) -> None:
    """Print `answer` as JSON, or let `show` print it for people."""
    if as_json:
        print_json(answer)
    else:
        show(answer)


def print_json(value: object) -> None:
    """Print `value` (plain values or dataclasses) as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; columns of numbers are aligned to the right. The output is the same with and without a
    terminal, so that `awk` can read it."""
    cells = [[column.upper() for column in columns], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    numeric = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(columns))]
    for row in cells:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(parts).rstrip())


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Print ``name  value`` lines."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name.ljust(width)}  {_cell(value)}")


def size_text(size_bytes: float) -> str:
    """`size_bytes` in powers of 1,000: ``12.3 MB``."""
    value, unit = float(size_bytes), 0
    while value >= 1_000 and unit < len(_SIZE_UNITS) - 1:
        value, unit = value / 1_000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_SIZE_UNITS[unit]}"


def time_text(time_ms: int) -> str:
    """``2026-01-31T12:00:00Z``"""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
