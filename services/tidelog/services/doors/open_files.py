"""The limit of open files of the process. Each connection takes one, and so does each request to the store.

A process that has none left can neither accept connections nor reach its store. So a broker raises its limit as far as
it may, and a door that takes thousands of connections leaves `FILES_KEPT` for the rest of the process.
"""

from __future__ import annotations

import resource

FILES_KEPT = 1_024
"""At most half of the limit."""


def raise_open_files() -> int:
    """Raise the limit as far as the process may, and return it. Many systems start processes with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS: the hard limit is infinite, and the kernel's is lower
            return soft
    return hard


def connections_within(files_max: int, connections_max: int) -> int:
    """How many of `connections_max` connections a limit of `files_max` open files leaves."""
    if files_max == resource.RLIM_INFINITY:
        return connections_max
    return min(connections_max, files_max - min(FILES_KEPT, files_max // 2))


def open_files_max() -> int:
    """The limit now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
