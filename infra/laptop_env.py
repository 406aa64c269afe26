"""Prints an ``.env`` for a laptop: ``python3 infra/laptop_env.py > .env``. Each run creates new secrets, so keep the
file as long as you keep the volumes. Standard library only."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / ".env.example"


def filled(example: str) -> str:
    """`example` with a random value for each variable that has none."""
    return re.sub(r"^([A-Z0-9_]+)=$", lambda found: f"{found[1]}={secrets.token_hex(16)}", example, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.stdout.write(filled(EXAMPLE.read_text()))
