"""Options of the form ``NAME=VALUE``, which may be given several times."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.storage.errors import Invalid


def named_values(option: str, given: Iterable[str]) -> dict[str, str]:
    """The values by name. Raises `Invalid`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"--{option} {text!r}: give it as NAME=VALUE", field=option)
        if name.strip() in found:
            raise Invalid(f"--{option} names {name.strip()} twice", field=option)
        found[name.strip()] = value
    return found
