"""Seeds of simulations: a few in the suite, more in `make soak`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def seeds(suite: int, soak: int) -> Sequence[object]:
    """The seeds 0 to `suite` for the suite, and from there to `soak` for `make soak`."""
    return [
        *(pytest.param(seed) for seed in range(suite)),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(suite, soak)),
    ]
