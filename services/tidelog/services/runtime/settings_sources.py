"""Settings from where people put them: defaults < a TOML file < ``TIDELOG_*`` variables < flags.

A file may write ``flush.interval.ms = 100`` or nest tables; a variable is the name in capitals with underscores,
``TIDELOG_FLUSH_INTERVAL_MS``. A name that is not known is an error that tells its source and the nearest known name,
so that a slip of the pen never runs a broker with a default. Variables that Kubernetes makes of Services are ignored
(`kubernetes_names`).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.services.runtime.kubernetes_names import service_links
from tidelog.services.runtime.setting_rules import Setting, Value, known_settings
from tidelog.services.runtime.settings import Settings
from tidelog.storage.errors import Invalid

CONFIG_VARIABLE = "TIDELOG_CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, "TIDELOG_BROKER")
"""Variables of Tidelog's that are no settings of a broker."""
TEST_VARIABLES = ("TIDELOG_REQUIRE_ALL", "TIDELOG_SOAK_MINUTES", "TIDELOG_REAL_LOGS", "TIDELOG_TEST_")
"""Those (and prefixes of those) that the test suite reads: a broker started by a test sees them too."""

DEFAULT = "default"


@dataclass(frozen=True)
class Chosen:
    """A setting's effective value and where it comes from: ``default``, a file's path, a variable's name or a flag."""

    setting: Setting
    value: Value
    source: str


@dataclass(frozen=True)
class LoadedSettings:
    """`settings` for the broker; `chosen` tells people how they came about, a line each. `service_links`: ignored
    variables, which Kubernetes made."""

    settings: Settings
    chosen: tuple[Chosen, ...]
    service_links: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Given:
    name: str
    value: object
    source: str


def load_settings(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
) -> LoadedSettings:
    """The effective settings. `flags` are by dotted name, None where a flag was not given; without `config` the file
    is the one that ``TIDELOG_CONFIG`` names. Raises `Invalid` with the setting and its source."""
    links = service_links(environ or {})
    variables = {name: value for name, value in (environ or {}).items() if name not in links}
    path = config or (Path(variables[CONFIG_VARIABLE]) if variables.get(CONFIG_VARIABLE) else None)
    known = known_settings()
    chosen = {name: Chosen(setting, setting.default, DEFAULT) for name, setting in known.items()}
    for given in (*_from_file(path), *_from_environment(variables), *_from_flags(flags or {})):
        if given.name not in known:
            raise Invalid(_unknown(given, known), field=given.name)
        try:
            value = known[given.name].parsed(given.value)
        except Invalid as error:
            raise Invalid(f"{given.source}: {error}", field=given.name) from None
        chosen[given.name] = Chosen(known[given.name], value, given.source)
    values = {choice.setting.field: choice.value for choice in chosen.values()}
    settings = replace(Settings(), **values)  # type: ignore[arg-type]  # each value was parsed with its field's type
    _check_together(settings)
    return LoadedSettings(settings, tuple(chosen.values()), tuple(sorted(links)))


def _from_file(path: Path | None) -> Iterator[_Given]:
    if path is None:
        return
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"the settings file {path} cannot be read: {error.strerror}", field="config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not TOML: {error}", field="config") from error
    for name, value in _flattened(tables, ""):
        yield _Given(name, value, str(path))


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(variables: Mapping[str, str]) -> Iterator[_Given]:
    for variable, value in sorted(variables.items()):
        known_otherwise = variable in OTHER_VARIABLES or variable.startswith(TEST_VARIABLES)
        if variable.startswith("TIDELOG_") and not known_otherwise:
            yield _Given(variable.removeprefix("TIDELOG_").lower().replace("_", "."), value, variable)


def _from_flags(flags: Mapping[str, str | None]) -> Iterator[_Given]:
    for name, value in flags.items():
        if value is not None:
            yield _Given(name, value, "--" + name.replace(".", "-"))


def _unknown(given: _Given, known: Mapping[str, Setting]) -> str:
    nearest = difflib.get_close_matches(given.name, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"{given.source}: {given.name!r} is not a setting; {hint}`tidelog config` lists them all"


def _check_together(settings: Settings) -> None:
    """Bounds that lie between two settings."""
    for smaller, larger in (("flush_max_bytes", "buffer_max_bytes"), ("key_max_bytes", "request_max_bytes")):
        if getattr(settings, smaller) > getattr(settings, larger):
            raise Invalid(
                f"{smaller.replace('_', '.')} is at most {larger.replace('_', '.')} ({getattr(settings, larger)}), "
                f"not {getattr(settings, smaller)}",
                field=smaller.replace("_", "."),
            )
