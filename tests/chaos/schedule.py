"""The order of faults, as a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.cluster.topology import Shape
from tests.chaos.fault_kinds import Drawn, kinds_for
from tests.chaos.faults import Fault


@dataclass(frozen=True)
class Pace:
    """`calm_s`: bounds of the time before each fault. `lasting`: see `Drawn`."""

    calm_s: tuple[float, float] = (2.0, 6.0)
    lasting: float = 1.0


USUAL = Pace()


@dataclass(frozen=True)
class Planned:
    """`fault` comes after this time of calm. `kind` groups it in reports."""

    kind: str
    fault: Fault
    calm_s: float


def plan(seed: int, shape: Shape, kinds: Sequence[str] | None = None, pace: Pace = USUAL) -> Iterator[Planned]:
    """Faults without end, every kind once per round, in a different order each round."""
    known = kinds_for(shape)
    draw = random.Random(seed)
    drawn = Drawn(draw, shape, pace.lasting)
    while True:
        order = list(kinds or known)
        draw.shuffle(order)
        for kind in order:
            yield Planned(kind, known[kind](drawn), draw.uniform(*pace.calm_s))
