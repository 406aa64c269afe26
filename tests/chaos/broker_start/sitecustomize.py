"""Python runs this file first in every process of Tidelog that the harness starts: its folder is in their
``PYTHONPATH``."""

from __future__ import annotations

import os

from tests.chaos.mutation_names import MUTATION
from tests.chaos.stepped_clock import step_wall_clock

step_wall_clock()
if MUTATION in os.environ:
    from tests.chaos.mutations import mutate

    mutate(os.environ[MUTATION])
