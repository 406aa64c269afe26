"""Structured logs on stderr: a line of text on a terminal, a JSON object a line elsewhere.

Only the standard library's logging: what a module logs is its message, its level and, by ``extra={"fields": …}``, what
a program should not have to parse out of the message.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from tidelog.storage.errors import Invalid

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "text", "json")
_ENCODER = msgspec.json.Encoder(enc_hook=repr)
_UNFINISHED = "ASGI callable returned without completing response."


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", …fields, "cause"}``, one object a line."""

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
    """Send the logs of this process to `stream` (stderr). `Invalid` for a level or format that is not known."""
    if level not in LEVELS:
        raise Invalid(f"log.level is one of {' | '.join(LEVELS)}, not {level!r}", field="log.level")
    if log_format not in FORMATS:
        raise Invalid(f"log.format is one of {' | '.join(FORMATS)}, not {log_format!r}", field="log.format")
    out = sys.stderr if stream is None else stream
    text = log_format == "text" or (log_format == "auto" and out.isatty())
    lines = logging.StreamHandler(out)
    lines.setFormatter(TextLines() if text else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)
    for noisy in ("uvicorn", "botocore", "aiobotocore", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)


def _is_no_cut(record: logging.LogRecord) -> bool:
    """uvicorn reports an answer that is left unfinished as an error. It is left so on purpose, and whoever cut it has
    logged why (`stream_answer`, `forwarded_answer`)."""
    return record.msg != _UNFINISHED


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
