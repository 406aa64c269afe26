"""`docker-compose.yml` as values, with its variables substituted like Compose does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
VARIABLES: Mapping[str, str] = {
    "S3_ACCESS_KEY_ID": "a-key-id",
    "S3_SECRET_ACCESS_KEY": "a-secret-key",
    "GRAFANA_PASSWORD": "a-password",
}
SPILL_FOLDER = "/var/lib/tidelog/spill"
"""Where brokers and compactors in the image put data that they do not hold in memory."""
REFERENCE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)([^}]*)\}")


@cache
def document() -> Mapping[str, Any]:
    """The whole file with `VARIABLES` substituted."""
    text = REFERENCE.sub(lambda found: VARIABLES[found[1]], FILE.read_text())
    parsed: Mapping[str, Any] = yaml.safe_load(text.replace("$$", "$"))
    return parsed


def services() -> Mapping[str, Mapping[str, Any]]:
    """Services by name."""
    found: Mapping[str, Mapping[str, Any]] = document()["services"]
    return found
