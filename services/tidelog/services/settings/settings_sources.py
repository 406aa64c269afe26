"""Reads settings from their sources. Each source overrides those before it: defaults, a TOML file, ``TIDELOG_*``
variables, flags.

A file may write ``flush.interval.ms = 100`` or nest tables. An unknown name is an error that names the source and the
nearest known setting, so that a misspelled setting never starts a broker with a default.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.services.settings.setting import Setting, Value, declared_settings
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import Invalid

DEFAULT = "default"
CONFIG_VARIABLE = "TIDELOG_CONFIG"
OTHER_VARIABLES = (
    CONFIG_VARIABLE,
    "TIDELOG_BROKER",
    "TIDELOG_CA_FILE",
    "TIDELOG_PASSWORD",
    "TIDELOG_PRICES",
    "TIDELOG_PROFILE",
    "TIDELOG_PROFILES",
    "TIDELOG_USER",
    "TIDELOG_REQUIRE_ALL",
    "TIDELOG_SOAK_MINUTES",
    "TIDELOG_REAL_LOGS",
)
"""Variables of Tidelog that are no settings. The test suite reads the last three and those that begin with
``TIDELOG_TEST_``; a broker that a test starts sees them too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chosen:
    """The effective value of a setting and its source: ``default``, a file's path, a variable's name or a flag."""

    setting: Setting
    value: Value
    source: str


@dataclass(frozen=True)
class LoadedSettings:
    """`settings` for the process, and `chosen`, which shows where each value comes from. `service_links` are the names
    of variables that Kubernetes made and that were ignored."""

    settings: Settings
    chosen: tuple[Chosen, ...]
    service_links: tuple[str, ...] = ()


class _Given(NamedTuple):
    name: str
    value: object
    source: str


@cache
def known_settings() -> Mapping[str, Setting]:
    """Every setting by its dotted name."""
    return declared_settings(Settings)


def load_settings(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
) -> LoadedSettings:
    """The effective settings. `flags` are by dotted name; None means that the flag was not given. Without `config`, the
    file is the one that ``TIDELOG_CONFIG`` names. Raises `Invalid` with the setting and its source."""
    variables = dict(environ or {})
    links = service_links(variables)
    path = config or (Path(variables[CONFIG_VARIABLE]) if variables.get(CONFIG_VARIABLE) else None)
    chosen = {name: Chosen(setting, setting.default, DEFAULT) for name, setting in known_settings().items()}
    for given in (*_from_file(path), *_from_variables(variables, links), *_from_flags(flags or {})):
        chosen[given.name] = _chosen(given)
    values: dict[str, Any] = {each.setting.attribute: each.value for each in chosen.values()}
    settings = Settings(**values)
    _check_together(settings)
    return LoadedSettings(settings, tuple(chosen.values()), tuple(sorted(links)))


def service_links(variables: Mapping[str, str]) -> frozenset[str]:
    """The names among `variables` that Kubernetes made, and that are no settings.

    A Service named ``tidelog`` gives every container of its namespace ``TIDELOG_SERVICE_HOST``,
    ``TIDELOG_SERVICE_PORT``, ``TIDELOG_SERVICE_PORT_HTTP``, ``TIDELOG_PORT=tcp://10.0.0.1:8080``,
    ``TIDELOG_PORT_8080_TCP``, ``TIDELOG_PORT_8080_TCP_ADDR`` and so on, unless ``enableServiceLinks`` is false.
    ``TIDELOG_PORT`` is also the setting `port`: a URL is Kubernetes', a number is the setting.
    https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
    """
    hosts = (name.removesuffix("_SERVICE_HOST") for name in variables if name.endswith("_SERVICE_HOST"))
    services = [name for name in hosts if name.startswith("TIDELOG") and f"{name}_SERVICE_PORT" in variables]
    link = re.compile(
        rf"({'|'.join(map(re.escape, services))})"
        r"(_SERVICE_HOST|_SERVICE_PORT(_[A-Z0-9_]+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
    )
    found = {name for name in variables if services and link.fullmatch(name)}
    return frozenset(found if "://" in variables.get("TIDELOG_PORT", "") else found - {"TIDELOG_PORT"})


def log_ignored(names: Collection[str]) -> None:
    """Log one line about ignored variables. Call it once logs are configured."""
    if names:
        fields = {"variables": sorted(names)}
        _log.info("ignored variables that Kubernetes made of Services", extra={"fields": fields})


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


def _from_variables(variables: Mapping[str, str], ignored: Collection[str]) -> Iterator[_Given]:
    for variable, value in sorted(variables.items()):
        is_other = variable in (*OTHER_VARIABLES, *ignored) or variable.startswith("TIDELOG_TEST_")
        if variable.startswith("TIDELOG_") and not is_other:
            yield _Given(variable.removeprefix("TIDELOG_").lower().replace("_", "."), value, variable)


def _from_flags(flags: Mapping[str, str | None]) -> Iterator[_Given]:
    for name, value in flags.items():
        if value is not None:
            yield _Given(name, value, "--" + name.replace(".", "-"))


def _chosen(given: _Given) -> Chosen:
    setting = known_settings().get(given.name)
    if setting is None:
        nearest = difflib.get_close_matches(given.name, known_settings(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        text = f"{given.source}: {given.name!r} is not a setting; {hint}`tidelog config` lists them all"
        raise Invalid(text, field=given.name)
    try:
        return Chosen(setting, setting.parsed(given.value), given.source)
    except Invalid as error:
        raise Invalid(f"{given.source}: {error}", field=given.name) from None


def _check_together(settings: Settings) -> None:
    """Check the bounds that lie between two settings."""
    for smaller, larger in (
        ("flush.max.bytes", "buffer.max.bytes"),
        ("key.max.bytes", "request.max.bytes"),
        ("socket.request.max.bytes", "queued.max.request.bytes"),
    ):
        value, bound = (getattr(settings, name.replace(".", "_")) for name in (smaller, larger))
        if value > bound:
            raise Invalid(f"{smaller} must be at most {larger} ({bound}), not {value}", field=smaller)
