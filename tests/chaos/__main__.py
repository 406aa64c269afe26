"""``make chaos MINUTES=60``: a long run with a report in artifacts/chaos/.

python -m tests.chaos --minutes 60                      a random seed, three brokers, etcd, MinIO
python -m tests.chaos --minutes 5 --seed 7              the faults of seed 7 again
python -m tests.chaos --minutes 5 --kind "etcd down"    one kind of fault, again and again
python -m tests.chaos --minutes 5 --alone               one broker without etcd
python -m tests.chaos --sabotage "the bucket forgets"   a mistake that the judge must find, in less than a minute
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.cluster.process import Failed
from infra.cluster.topology import Shape
from infra.components import component, prepare
from tests.chaos.chaos_run import ChaosRun, DidNotRecover
from tests.chaos.fault_kinds import kinds_for
from tests.chaos.report import report_on, write_report
from tests.chaos.sabotage import SABOTAGES, Sabotage


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return 1 if the run fails."""
    chosen = _parser().parse_args(arguments)
    shape = Shape(1, 0) if chosen.alone else Shape()
    unknown = set(chosen.kind or ()) - set(kinds_for(shape))
    if unknown:
        print(f"no such kind: {', '.join(unknown)}; known are {', '.join(kinds_for(shape))}", file=sys.stderr)
        return 2
    if not all(prepare(component(name)) for name in (("minio",) if chosen.alone else ("minio", "etcd"))):
        return 1
    prepare(component("log-oracle"))  # a machine without Go has only one judge, and the report says so
    folder = _unused(chosen.folder, f"seed-{chosen.seed}")
    print(f"seed {chosen.seed}, {chosen.minutes:g} minutes; histories and logs in {folder}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the contexts, which stop the processes
    try:
        if chosen.sabotage:
            return _sabotaged(SABOTAGES[chosen.sabotage], folder, chosen.seed, shape)
        outcome = ChaosRun(folder, seed=chosen.seed, shape=shape, told=_tell).for_minutes(chosen.minutes, chosen.kind)
    except (DidNotRecover, Failed, AssertionError) as error:
        print(f"BROKEN, seed {chosen.seed}; histories and logs in {folder}\n{error}", file=sys.stderr)
        return 1
    report = write_report(report_on(outcome), folder)
    print(report.read_text() if outcome.holds else outcome.summary())
    print(f"the report: {report}")
    return 0 if outcome.holds else 1


def _sabotaged(sabotage: Sabotage, folder: Path, seed: int, shape: Shape) -> int:
    """Return 0 if the judge found the mistake."""
    outcome = sabotage.run(folder, seed=seed, shape=shape, told=_tell)
    found = sabotage.found(outcome)
    wanted = ", ".join(rule.name for rule in sabotage.rules)
    print(found or f"NOT FOUND: {wanted}\n{outcome.summary()}")
    return 0 if found else 1


def _tell(line: str) -> None:
    print(line, flush=True)


def _unused(parent: Path, name: str) -> Path:
    """A folder that no earlier run of the seed has used."""
    names = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
    return next(parent / each for each in names if not (parent / each).exists())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--kind", action="append", metavar="KIND", help="only faults of this kind; may be repeated")
    parser.add_argument("--alone", action="store_true", help="one broker without etcd")
    parser.add_argument("--sabotage", choices=SABOTAGES, metavar="NAME", help=f"one of: {', '.join(SABOTAGES)}")
    parser.add_argument("--folder", type=Path, default=Path("artifacts/chaos"))
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
