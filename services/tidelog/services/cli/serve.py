"""`tidelog serve` and `tidelog config`, and the flags that commands with settings share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.services.cli.console import print_json, print_table
from tidelog.services.cli.option_sets import as_command, flattened, option_parameter
from tidelog.services.cli.options import JsonOption
from tidelog.services.doors.open_files import raise_open_files
from tidelog.services.runtime.process_memory import bound_memory
from tidelog.services.settings.setting import Setting
from tidelog.services.settings.settings_sources import LoadedSettings, known_settings, load_settings

_METAVARS = {"text": "TEXT", "switch": "true|false", "count": "N", "size": "SIZE", "duration": "TIME"}

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A TOML file of settings.", metavar="FILE", envvar="TIDELOG_CONFIG")
]


def serve(loaded: LoadedSettings) -> None:
    """Run a broker, until SIGTERM or Ctrl-C.

    Settings come from defaults < --config FILE < TIDELOG_* variables < flags.
    Write sizes as 8MiB or 8388608, times as 250ms, 30s or 30000.

    [dim]tidelog serve --store s3://my-bucket/log --port 9000[/dim]
    """
    bound_memory()
    raise_open_files()
    from tidelog.services.runtime.serving import serve as run_broker

    raise typer.Exit(run_broker(loaded.settings, loaded.service_links))


def config(loaded: LoadedSettings, as_json: JsonOption = False) -> None:
    """Show the value of every setting as `serve` would use it, and the source of the value.

    [dim]tidelog config --config tidelog.toml[/dim]
    """
    if as_json:
        print_json({c.setting.name: {"value": c.setting.public(c.value), "source": c.source} for c in loaded.chosen})
        return
    rows = [(chosen.setting.name, chosen.setting.shown(chosen.value), chosen.source) for chosen in loaded.chosen]
    print_table(("setting", "value", "from"), rows)


def with_settings(command: Callable[..., None], *, groups: Collection[str] = ()) -> Callable[..., None]:
    """`command(loaded=..., **others)` as a command that also takes `--config` and a flag for each setting, or for each
    setting of `groups`."""
    taking = flattened(command)
    flagged = [setting for setting in known_settings().values() if not groups or setting.group in groups]

    def run(config: Path | None = None, **given: Any) -> None:
        flags = {setting.name: given.pop(setting.attribute) for setting in flagged}
        taking(loaded=load_settings(config=config, environ=os.environ, flags=flags), **given)

    own = list(inspect.signature(taking, eval_str=True).parameters.values())[1:]
    return as_command(run, command, [*own, option_parameter("config", ConfigOption), *map(_flag, flagged)])


def _flag(setting: Setting) -> inspect.Parameter:
    option = typer.Option(
        setting.flag,
        help=f"{setting.meaning} [dim]\\[{setting.shown(setting.default)}][/dim]",
        metavar="|".join(setting.choices) or _METAVARS[setting.kind],
        rich_help_panel=setting.group,
        show_default=False,
    )
    return option_parameter(setting.attribute, Annotated[str | None, option])
