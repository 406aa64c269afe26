"""How a broker is told which mistakes to make. Apart from `mutations`, so that a broker without any imports nothing."""

from __future__ import annotations

MUTATION = "CHAOS_MUTATION"
"""The environment variable that names them."""
AND = " and "
"""Between the names of several."""
