"""``python -m tests.chaos.checker HISTORY...``: the verdict on recorded histories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from tests.chaos.checker.history_lines import parse_history
from tests.chaos.checker.judge import judge


def main(paths: Sequence[str]) -> int:
    """Judge the files as one history. Return 1 if a rule is broken."""
    with ExitStack() as open_files:
        files = [open_files.enter_context(Path(path).open(encoding="utf-8")) for path in paths]
        verdict = judge(parse_history(chain.from_iterable(files)))
    print(verdict)
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
