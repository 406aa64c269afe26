"""One setting: its type, its bounds, and how people write its value.

Sizes are written ``8MiB`` or as a number of bytes, durations ``250ms``, ``30s``, ``7d`` or as a number of milliseconds.
A setting whose default is None has the value ``auto``: the broker chooses.

`settings.Settings` declares each setting once, as a dataclass field made by `text`, `switch`, `count`, `size` or
`duration`; `declared_settings` reads them back. pydantic-settings would do part of this, but importing it takes
0.14 s, and every command needs the settings for its help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast

from tidelog.storage.errors import Invalid

Kind = Literal["text", "switch", "count", "size", "duration"]
Value = str | int | bool | None

AUTO = "auto"
SECRET_SET = "(set)"  # noqa: S105  # shown instead of a secret

_SHOWN_UNITS: Mapping[str, Mapping[str, int]] = {
    "size": {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10},
    "duration": {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1},
}
"""Largest first: a value is shown in the largest unit that divides it."""
_ALSO_READ = {"size": {"gb": 10**9, "mb": 10**6, "kb": 10**3, "b": 1}}
_WANTED = {"size": "a size as 8MiB or 8388608", "duration": "a duration as 30s or 30000 (ms)"}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Setting:
    """`name` is dotted; `group` is its heading. `low` and `high` bound a number, `choices` a text. The value of a
    `secret` is never shown."""

    name: str
    kind: Kind
    default: Value
    meaning: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    secret: bool = False
    group: str = ""

    @property
    def attribute(self) -> str:
        """Its name in `Settings`."""
        return self.name.replace(".", "_")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace(".", "-")

    @property
    def variable(self) -> str:
        return "TIDELOG_" + self.attribute.upper()

    def parsed(self, value: object) -> Value:
        """`value`, as text or as TOML gives it, in this setting's type. Raises `Invalid` with the setting's name and
        what is allowed; the caller adds the source."""
        if self.default is None and value == AUTO:
            return None
        if self.kind == "switch":
            return _switch(self.name, value)
        if self.kind == "text":
            return self._text(value)
        number = measured(self.name, self.kind, value)
        if not self.low <= number <= self.high:
            allowed = f"{self.shown(self.low)} to {self.shown(self.high)}"
            raise Invalid(f"{self.name} must be {allowed}, not {value}", field=self.name)
        return number

    def public(self, value: Value) -> Value:
        """`value`; for a secret, only whether it is set."""
        return SECRET_SET if self.secret and value is not None else value

    def shown(self, value: Value) -> str:
        """`value` as a person would write it."""
        if value is None:
            return AUTO
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            units = _SHOWN_UNITS.get(self.kind, {})
            return next((f"{value // n}{unit}" for unit, n in units.items() if value and value % n == 0), str(value))
        return SECRET_SET if self.secret else value

    def _text(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise Invalid(f"{self.name} must be text, not {value!r}", field=self.name)
        if self.choices and value not in self.choices:
            raise Invalid(f"{self.name} must be one of {' | '.join(self.choices)}, not {value!r}", field=self.name)
        return value


def measured(name: str, kind: Kind, value: object) -> int:
    """`value` as a number: bytes (size), milliseconds (duration) or a plain number (count). Raises `Invalid`."""
    units = {unit.lower(): n for unit, n in _SHOWN_UNITS.get(kind, {}).items()} | _ALSO_READ.get(kind, {}) | {"": 1}
    found = None if isinstance(value, bool) else re.fullmatch(r"(-?\d{1,18})\s*([a-zA-Z]*)", str(value).strip())
    if not found or found[2].lower() not in units:
        raise Invalid(f"{name} must be {_WANTED.get(kind, 'a whole number')}, not {value!r}", field=name)
    return int(found[1]) * units[found[2].lower()]


def text(
    default: str | None, meaning: str, *, choices: tuple[str, ...] = (), secret: bool = False, group: str = ""
) -> str:
    return cast(str, _field(Setting("", "text", default, meaning, choices=choices, secret=secret, group=group)))


def switch(default: bool, meaning: str, *, group: str = "") -> bool:
    return cast(bool, _field(Setting("", "switch", default, meaning, group=group)))


def count(default: int, allowed: str, meaning: str, *, group: str = "") -> int:
    """`allowed` is a range: ``1 to 100``. So it is in `size` and `duration`: ``64KiB to 1GiB``, ``100ms to 1m``."""
    return cast(int, _number("count", str(default), allowed, meaning, group))


def size(default: str, allowed: str, meaning: str, *, group: str = "") -> int:
    return cast(int, _number("size", default, allowed, meaning, group))


def duration(default: str, allowed: str, meaning: str, *, group: str = "") -> int:
    return cast(int, _number("duration", default, allowed, meaning, group))


def declared_settings(settings: type[Any]) -> dict[str, Setting]:
    """The settings that the fields of `settings` declare, by dotted name and in their order. A setting without a group
    is in the group of the one before it."""
    found: dict[str, Setting] = {}
    group = ""
    for each in fields(settings):
        declared: Setting = each.metadata["setting"]
        group = declared.group or group
        setting = replace(declared, name=each.name.replace("_", "."), group=group)
        found[setting.name] = setting
    return found


def _number(kind: Kind, default: str, allowed: str, meaning: str, group: str) -> object:
    low, high = (measured("allowed", kind, bound) for bound in allowed.split(" to "))
    default_number = None if default == AUTO else measured("default", kind, default)
    return _field(Setting("", kind, default_number, meaning, low, high, group=group))


def _field(setting: Setting) -> object:
    return field(default=setting.default, metadata={"setting": setting})


def _switch(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise Invalid(f"{name} must be true or false, not {value!r}", field=name)
    return text in _TRUE
