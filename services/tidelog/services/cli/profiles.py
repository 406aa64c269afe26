"""Profiles: named brokers with the authority to trust and the user, in a file of the user.

The file is ``$TIDELOG_PROFILES``, else ``tidelog/profiles.json`` in ``$XDG_CONFIG_HOME`` or ``~/.config``. Only its
owner can read it (mode 0600). It holds no password: that comes from ``TIDELOG_PASSWORD``. A command uses the profile
that ``--profile`` or ``TIDELOG_PROFILE`` names, else the current one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidelog.storage.errors import Corrupt, Invalid, NotFound

FILE_VARIABLE = "TIDELOG_PROFILES"
PROFILES_MAX = 1_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values for the options of the same names; None: the profile does not say."""

    broker: str | None = None
    ca_file: str | None = None
    user: str | None = None


class Profiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All profiles, and the name of the current one (None: none is in use)."""

    profiles: dict[str, Profile] = {}
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Raises `NotFound`."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise NotFound(f"there is no profile {name!r}; the profiles are: {known}. See `tidelog profile set`")
        return self.profiles[name]

    def in_use(self, name: str | None) -> Profile:
        """The profile `name`, else the current one, else one that says nothing. Raises `NotFound`."""
        chosen = name or self.current
        return Profile() if chosen is None else self.named(chosen)

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """With `name` added or replaced. The first profile becomes the current one. Raises `Invalid`."""
        if not _NAME.fullmatch(name):
            raise Invalid(f"{name!r} is no name of a profile: 1 to 64 letters, digits, '.', '_', '-'", field="name")
        if len(self.profiles) >= PROFILES_MAX and name not in self.profiles:
            raise Invalid(f"there are {PROFILES_MAX:,} profiles already: delete one", field="name")
        return Profiles({**self.profiles, name: profile}, self.current or name)

    def using(self, name: str) -> Profiles:
        """With `name` as the current profile. Raises `NotFound`."""
        self.named(name)
        return Profiles(self.profiles, name)

    def without(self, name: str) -> Profiles:
        """Raises `NotFound`."""
        self.named(name)
        others = {other: profile for other, profile in self.profiles.items() if other != name}
        return Profiles(others, None if self.current == name else self.current)


def profiles_file(environ: Mapping[str, str]) -> Path:
    """Where the profiles of this user are."""
    if named := environ.get(FILE_VARIABLE):
        return Path(named).expanduser()
    config = environ.get("XDG_CONFIG_HOME", "")
    folder = (
        Path(config) if config.startswith("/") else Path("~/.config").expanduser()
    )  # XDG: relative ones are ignored
    return folder / "tidelog" / "profiles.json"


def read_profiles(file: Path) -> Profiles:
    """The profiles in `file`; none if there is no file. Raises `Corrupt`, and `Invalid` if it cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Profiles)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}", field=FILE_VARIABLE) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(str(file), f"is no file of profiles ({error}): mend or delete it") from error


def write_profiles(file: Path, profiles: Profiles) -> None:
    """Replace `file` at once, readable by its owner only. Raises `Invalid`."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
            os.fchmod(written.fileno(), 0o600)
            written.write(msgspec.json.format(msgspec.json.encode(profiles)) + b"\n")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Invalid(f"{file} cannot be written: {error.strerror}", field=FILE_VARIABLE) from error
