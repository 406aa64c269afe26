"""Topic configs as people write them: ``retention.ms=7d`` and ``segment.bytes=1GiB`` become milliseconds and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.services.runtime.setting import Kind, measured
from tidelog.storage.errors import Invalid

_KINDS: Mapping[str, Kind] = {".ms": "duration", ".bytes": "size"}
"""What a config's value is, by the unit at the end of its name."""


def config_changes(pairs: Sequence[str]) -> Mapping[str, str]:
    """``KEY=VALUE`` pairs, values with units as plain numbers. Raises `Invalid`; the broker judges the rest."""
    return dict(_change(pair) for pair in pairs)


def _change(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise Invalid(f"--set takes KEY=VALUE, as retention.ms=7d, not {pair!r}", field="configs")
    kind = next((kind for unit, kind in _KINDS.items() if key.endswith(unit)), None)
    return key, value if kind is None else str(measured(key, kind, value))
