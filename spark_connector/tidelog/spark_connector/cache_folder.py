"""Where downloads and shims of this room lie: in the user's cache, once per machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str], part: str) -> Path:
    """``$XDG_CACHE_HOME/tidelog/<part>``, else below ``~/.cache``; it need not exist."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidelog" / part
