"""`tidelog profile list | show | set | use | delete`: named brokers, so that commands need no options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidelog.services.cli.broker_options import DEFAULT_BROKER, PASSWORD_VARIABLE, PROFILE_VARIABLE
from tidelog.services.cli.console import print_json, print_table
from tidelog.services.cli.options import JsonOption
from tidelog.services.cli.profiles import Profile, Profiles, profiles_file, read_profiles, write_profiles
from tidelog.storage.errors import Invalid

_VARIABLES = {"broker": "TIDELOG_BROKER", "ca_file": "TIDELOG_CA_FILE", "user": "TIDELOG_USER"}


def _names(incomplete: str) -> list[str]:
    return [name for name in read_profiles(profiles_file(os.environ)).profiles if name.startswith(incomplete)]


NewNameArgument = Annotated[
    str, typer.Argument(help="The profile's name.", metavar="NAME", show_default=False, autocompletion=_names)
]
BrokerValue = Annotated[
    str | None, typer.Option("--broker", "-b", help="Its brokers, with commas. Empty: unset.", metavar="URL")
]
CaFileValue = Annotated[
    str | None, typer.Option("--ca-file", help="PEM file of the authority to trust. Empty: unset.", metavar="FILE")
]
UserValue = Annotated[str | None, typer.Option("--user", help="Your name there. Empty: unset.", metavar="NAME")]


@dataclass(frozen=True)
class Used:
    """A value that a command would use now, and where it comes from."""

    value: str | None
    source: str


def list_profiles(as_json: JsonOption = False) -> None:
    """List the profiles. The current one is marked.

    [dim]tidelog profile list[/dim]
    """
    known = _read()
    if as_json:
        print_json(known)
        return
    rows = [
        (name, name == known.current, profile.broker, profile.ca_file, profile.user)
        for name, profile in sorted(known.profiles.items())
    ]
    print_table(("profile", "current", "broker", "ca file", "user"), rows)


def show(
    name: Annotated[
        str | None,
        typer.Argument(help="Another profile than the current one.", metavar="[NAME]", autocompletion=_names),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the broker that commands would use now, and the source of each value. No broker is asked.

    [dim]tidelog profile show[/dim]
    """
    used = _used(_read(), name or os.environ.get(PROFILE_VARIABLE))
    if as_json:
        print_json(used)
    else:
        print_table(("option", "value", "from"), [(key, one.value, one.source) for key, one in used.items()])


def set_profile(
    name: NewNameArgument, broker: BrokerValue = None, ca_file: CaFileValue = None, user: UserValue = None
) -> None:
    """Create a profile or change the given values of one. The first profile becomes the current one.

    [dim]tidelog profile set prod --broker https://log.example.com --ca-file ca.pem --user ann[/dim]
    """
    known = _read()
    before = known.profiles.get(name, Profile())
    profile = Profile(
        broker=before.broker if broker is None else broker or None,
        ca_file=before.ca_file if ca_file is None else _absolute(ca_file),
        user=before.user if user is None else user or None,
    )
    _check(profile)
    _write(known.with_profile(name, profile))
    print(f"profile {name}: {profile.broker or DEFAULT_BROKER}")


def use(name: NewNameArgument) -> None:
    """Make a profile the current one.

    [dim]tidelog profile use prod[/dim]
    """
    _write(_read().using(name))
    print(f"profile {name} is in use")


def delete(name: NewNameArgument) -> None:
    """Delete a profile. Nothing at the broker changes.

    [dim]tidelog profile delete prod[/dim]
    """
    _write(_read().without(name))
    print(f"deleted profile {name}")


def _read() -> Profiles:
    return read_profiles(profiles_file(os.environ))


def _write(profiles: Profiles) -> None:
    write_profiles(profiles_file(os.environ), profiles)


def _absolute(file: str) -> str | None:
    """A path that means the same in every folder; None if `file` is empty."""
    return str(Path(file).expanduser().absolute()) if file else None


def _used(known: Profiles, name: str | None) -> dict[str, Used]:
    profile, chosen = known.in_use(name), name or known.current
    defaults = {"broker": Used(DEFAULT_BROKER, "default")}
    named = bool(os.environ.get(PROFILE_VARIABLE))
    used = {"profile": Used(chosen, PROFILE_VARIABLE if named else "current profile")}
    for key, variable in _VARIABLES.items():
        if value := os.environ.get(variable):
            used[key] = Used(value, variable)
        elif (stored := getattr(profile, key)) is not None:
            used[key] = Used(stored, f"profile {chosen}")
        else:
            used[key] = defaults.get(key, Used(None, "default"))
    used["password"] = Used("(set)", PASSWORD_VARIABLE) if os.environ.get(PASSWORD_VARIABLE) else Used(None, "default")
    return used


def _check(profile: Profile) -> None:
    """Raises `Invalid` for values that no command could use. The password may come later."""
    from tidelog.client import BrokerAccess

    addresses = profile.broker or DEFAULT_BROKER
    password = None if profile.user is None else "checked when it is used"
    checked = BrokerAccess(addresses, profile.ca_file, profile.user, password)
    if any("@" in address for address in checked.address_list):
        raise Invalid("a profile holds no password: give --user, and TIDELOG_PASSWORD to the commands", field="broker")
