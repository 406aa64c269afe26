"""The options of every command that talks to a broker: where it is, whom to trust, and who the user is.

Each value comes from its flag, else from its variable, else from the profile, else from the default. `with_broker` adds
the options to a command, which gets them as one `BrokerChoice`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.services.cli.option_sets import as_command, flattened, option_parameter
from tidelog.services.cli.profiles import profiles_file, read_profiles

if TYPE_CHECKING:
    from tidelog.client import Admin, BrokerAccess

DEFAULT_BROKER = "http://127.0.0.1:8080"
PROFILE_VARIABLE = "TIDELOG_PROFILE"
PASSWORD_VARIABLE = "TIDELOG_PASSWORD"  # noqa: S105  # a name

_PANEL = "Broker"
OPTIONS: Mapping[str, Any] = {
    "broker": Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            envvar="TIDELOG_BROKER",
            help=f"The broker's URL. For a cluster, give several with commas. [dim]\\[{DEFAULT_BROKER}][/dim]",
            metavar="URL",
            rich_help_panel=_PANEL,
        ),
    ],
    "ca_file": Annotated[
        str | None,
        typer.Option(
            "--ca-file",
            envvar="TIDELOG_CA_FILE",
            help="PEM file of the authority that signed the certificate of an https broker.",
            metavar="FILE",
            rich_help_panel=_PANEL,
        ),
    ],
    "user": Annotated[
        str | None,
        typer.Option(
            "--user",
            envvar="TIDELOG_USER",
            help="Your name at the broker. The password comes from TIDELOG_PASSWORD only.",
            metavar="NAME",
            rich_help_panel=_PANEL,
        ),
    ],
    "profile": Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar=PROFILE_VARIABLE,
            help="Take what is not given from this profile, instead of the current one.",
            metavar="NAME",
            rich_help_panel=_PANEL,
        ),
    ],
}


@dataclass(frozen=True)
class BrokerChoice:
    """The broker that a command talks to, and how. It is plain data: no client is imported for it."""

    addresses: str = DEFAULT_BROKER
    ca_file: str | None = None
    user: str | None = None

    def access(self) -> BrokerAccess:
        """The same for a client, with the password. Raises `Invalid`."""
        from tidelog.client import BrokerAccess

        password = os.environ.get(PASSWORD_VARIABLE) if self.user is not None else None
        return BrokerAccess(self.addresses, self.ca_file, self.user, password)

    def admin(self) -> Admin:
        """An admin client. Raises `Invalid`."""
        from tidelog.client import Admin

        return Admin(self.access())


def chosen_broker(
    broker: str | None = None, ca_file: str | None = None, user: str | None = None, profile: str | None = None
) -> BrokerChoice:
    """The given values (of flags or variables), completed from the profile. Raises `NotFound`, `Corrupt`."""
    known = read_profiles(profiles_file(os.environ)).in_use(profile)
    return BrokerChoice(broker or known.broker or DEFAULT_BROKER, ca_file or known.ca_file, user or known.user)


def with_broker(command: Callable[..., None]) -> Callable[..., None]:
    """`command(broker, **others)` as a command with `OPTIONS`. The other parameters may be option sets."""
    taking = flattened(command)

    def run(**given: Any) -> None:
        taking(broker=chosen_broker(**{name: given.pop(name) for name in OPTIONS}), **given)

    own = list(inspect.signature(taking, eval_str=True).parameters.values())[1:]
    return as_command(run, command, [*own, *(option_parameter(name, option) for name, option in OPTIONS.items())])
