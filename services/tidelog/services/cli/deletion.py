"""Deletes what a command names, one by one, after a question on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.services.cli.console import confirm, print_json
from tidelog.storage.errors import NotFound


@dataclass(frozen=True)
class Deletion:
    """How to delete one name. `question`: asked unless `yes`. `if_exists`: skip names that do not exist."""

    delete: Callable[[str], object]
    question: Callable[[str], str]
    yes: bool
    if_exists: bool

    def run(self, names: Sequence[str], *, as_json: bool) -> None:
        """Delete `names` and print those that were deleted. Raises `NotFound`, and the errors of `delete`."""
        deleted: list[str] = []
        for name in names:
            if not self._deleted(name):
                continue
            deleted.append(name)
            if not as_json:
                print(f"deleted {name}")
        if as_json:
            print_json({"deleted": deleted})

    def _deleted(self, name: str) -> bool:
        try:
            if not self.yes:
                confirm(self.question(name))
            self.delete(name)
        except NotFound:
            if not self.if_exists:
                raise
            return False
        return True
