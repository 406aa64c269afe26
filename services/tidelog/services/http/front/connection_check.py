"""A request over a connection beyond ``connections.max`` is refused, unless it asks about the broker itself.

Otherwise clients that take all connections would have a supervisor kill the broker, whose probe is not answered.
"""

from __future__ import annotations

from starlette.types import Scope

from tidelog.services.http.front.host_check import PROBES
from tidelog.services.http.listener.connection_bounds import is_beyond
from tidelog.storage.errors import Overloaded

_ABOUT_THE_BROKER = frozenset({*PROBES, "/metrics"})
_RETRY_AFTER_S = 5.0


def check_connection(scope: Scope) -> None:
    """Raises `Overloaded`."""
    if is_beyond(scope) and scope["path"] not in _ABOUT_THE_BROKER:
        raise Overloaded(
            "all connections of the broker are taken (connections.max): nothing was taken, come back later",
            retry_after_s=_RETRY_AFTER_S,
        )
