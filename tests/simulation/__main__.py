"""Repeat a seed of the simulation: ``python -m tests.simulation --seed N [--trace] [--mutation NAME]``.

Without ``--trace`` it prints how often each event happened; with it, every request, transition, stall and crash in
order. ``--count N`` runs N seeds from the first one on and prints those that fail. The exit code is 1 if a seed broke
an invariant.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace

from tests.simulation.mutations import MUTATIONS
from tests.simulation.weather import WEATHERS
from tests.simulation.world import Cast, Outcome, World


def main() -> int:
    options = _parser().parse_args()
    cast = MUTATIONS[options.mutation].cast if options.mutation else Cast()
    if options.weather:
        cast = replace(cast, weather=WEATHERS[options.weather])
    broken, seen = 0, Counter[str]()
    for seed in range(options.seed, options.seed + options.count):
        outcome = World(seed, cast, traced=options.trace).run()
        seen += outcome.seen
        broken += _print(outcome)
    for what, count in sorted(seen.items()):
        print(f"{count:>8} {what}")
    print(f"{options.count} seeds, {broken} broken")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="a wrong version of the protocol")
    parser.add_argument("--weather", choices=sorted(WEATHERS), help="other than the seed draws it")
    return parser


def _print(outcome: Outcome) -> int:
    for line in outcome.trace:
        print(line)
    if outcome.violation is None:
        return 0
    print(f"seed {outcome.seed}: VIOLATION {outcome.violation}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
