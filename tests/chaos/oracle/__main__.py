"""``python -m tests.chaos.oracle HISTORY...``: the oracle's verdict on recorded histories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from infra.components import component, prepare
from tests.chaos.checker.history_lines import parse_history
from tests.chaos.oracle.oracle import ask_oracle, oracle_trouble


def main(paths: Sequence[str]) -> int:
    """Judge the files as one history. Return 1 if a partition is not linearizable or undecided, or if there is no
    oracle."""
    if not prepare(component("log-oracle")):
        return 1
    with ExitStack() as open_files:
        files = [open_files.enter_context(Path(path).open(encoding="utf-8")) for path in paths]
        verdicts = ask_oracle({"": parse_history(chain.from_iterable(files))})[""]
    print("\n".join(map(str, verdicts)))
    return 1 if oracle_trouble(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
