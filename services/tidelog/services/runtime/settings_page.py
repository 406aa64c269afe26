"""Writes ``docs/settings.md`` from the table of the settings: ``python -m tidelog.services.runtime.settings_page``."""

from __future__ import annotations

import sys

from tidelog.services.runtime.setting_rules import Setting, known_settings

_HEAD = """\
# Settings

Made from the code by `python -m tidelog.services.runtime.settings_page > docs/settings.md`; a test compares.

A setting is given, from the weakest to the strongest, by its default, a TOML file (`--config FILE` or
`TIDELOG_CONFIG`), a variable, or a flag:

```toml
flush.max.bytes = "4MiB"

[flush.interval]
ms = 100
```

```
TIDELOG_FLUSH_MAX_BYTES=4MiB tidelog serve --flush-interval-ms 100ms
```

The variable is the name in capitals with underscores after `TIDELOG_`, the flag the name with dashes. Sizes are
written `8MiB`, `8MB` or `8388608`, durations `250ms`, `30s`, `5m`, `1h`, `7d` or a number of milliseconds. A name that
is not known is an error that tells its source and the nearest known name. `tidelog config` shows the effective value
of each, and where it comes from.
"""


def settings_page() -> str:
    """The whole page."""
    settings = list(known_settings().values())
    groups = dict.fromkeys(setting.rule.group for setting in settings)
    return _HEAD + "".join(
        _section(group, [setting for setting in settings if setting.rule.group == group]) for group in groups
    )


def _section(group: str, settings: list[Setting]) -> str:
    rows = "".join(
        f"| `{setting.name}` | `{setting.shown(setting.default)}` | {_allowed(setting)} | {setting.rule.meaning} |\n"
        for setting in settings
    )
    return f"\n## {group}\n\n| Setting | Default | Allowed | Meaning |\n|---|---|---|---|\n{rows}"


def _allowed(setting: Setting) -> str:
    if setting.kind == "switch":
        return "true, false"
    if setting.kind == "text":
        return ", ".join(setting.rule.choices) or "text"
    allowed = f"{setting.shown(setting.rule.low)} to {setting.shown(setting.rule.high)}"
    return f"{allowed}, auto" if setting.optional else allowed


if __name__ == "__main__":
    sys.stdout.write(settings_page())
