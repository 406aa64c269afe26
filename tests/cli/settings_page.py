"""Writes docs/settings.md from the table of the settings: ``python -m tests.cli.settings_page > docs/settings.md``."""

from __future__ import annotations

import sys

from tidelog.services.settings.setting import Setting
from tidelog.services.settings.settings_sources import known_settings

_HEAD = """\
# Settings

This page lists every setting of a broker, and of `tidelog compactor`, with its default and what it allows.
`python -m tests.cli.settings_page > docs/settings.md` makes it from the code; a test compares the two.

A setting comes from its default, a TOML file (`--config FILE` or `TIDELOG_CONFIG`), a variable, or a flag. Each source
overrides those before it:

```toml
flush.max.bytes = "4MiB"

[flush.interval]
ms = 100
```

```
TIDELOG_FLUSH_MAX_BYTES=4MiB tidelog serve --flush-interval-ms 100ms
```

- **Names.** The variable is `TIDELOG_` and the name in capitals, with underscores. The flag is the name with dashes.
- **Values.** Write sizes as `8MiB`, `8MB` or `8388608`, and durations as `250ms`, `30s`, `5m`, `1h`, `7d` or in
  milliseconds.
- **Unknown names** are errors. The error names the source and the nearest known setting.
- `tidelog config` shows the effective value of each setting and its source.
"""


def settings_page() -> str:
    """The whole page."""
    settings = list(known_settings().values())
    groups = dict.fromkeys(setting.group for setting in settings)
    return _HEAD + "".join(
        _section(group, [setting for setting in settings if setting.group == group]) for group in groups
    )


def _section(group: str, settings: list[Setting]) -> str:
    rows = "".join(
        f"| `{setting.name}` | `{setting.shown(setting.default)}` | {_allowed(setting)} | {setting.meaning} |\n"
        for setting in settings
    )
    return f"\n## {group}\n\n| Setting | Default | Allowed | Meaning |\n|---|---|---|---|\n{rows}"


def _allowed(setting: Setting) -> str:
    if setting.kind == "switch":
        return "true, false"
    if setting.kind == "text":
        return ", ".join(setting.choices) or "text"
    allowed = f"{setting.shown(setting.low)} to {setting.shown(setting.high)}"
    return f"{allowed}, auto" if setting.default is None else allowed


if __name__ == "__main__":
    sys.stdout.write(settings_page())
