"""Structured logs on stderr: lines of text on a terminal, elsewhere one JSON object per line.

Modules use the standard library's logging. They pass values that programs need by ``extra={"fields": …}``, so that no
program must parse the message.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_ENCODER = msgspec.json.Encoder(enc_hook=repr)
_UNFINISHED = "ASGI callable returned without completing response."


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", …fields, "cause"}``, one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["cause"] = self.formatException(record.exc_info)
        return _ENCODER.encode(line).decode()


class TextLines(logging.Formatter):
    """``12:00:00.000 info    message  name=value``"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)[11:23]} {record.levelname.lower():<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send the logs of this process to `stream` (None: stderr)."""
    out = sys.stderr if stream is None else stream
    text = log_format == "text" or (log_format == "auto" and out.isatty())
    lines = logging.StreamHandler(out)
    lines.setFormatter(TextLines() if text else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)
    for noisy in ("uvicorn", "botocore", "aiobotocore", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut_answer)


def _is_no_cut_answer(record: logging.LogRecord) -> bool:
    """False for uvicorn's error about an unfinished answer. Such an answer was cut on purpose, and `stream_answer` or
    `forwarded_answer` has logged the reason."""
    return record.msg != _UNFINISHED


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
