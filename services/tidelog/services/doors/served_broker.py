"""The broker as its process and its metrics see it: `Broker`, with its life and its measurements."""

from __future__ import annotations

from typing import Protocol

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.telemetry.measurements import BrokerMeasurements


class ServedBroker(Broker, Protocol):
    """A broker as its process runs it: started before its first call, closed after its last."""

    @property
    def peer_secrets(self) -> PeerSecrets:
        """The secrets by which the brokers of its cluster know each other."""

    def measurements(self) -> BrokerMeasurements:
        """The counts up to now."""

    async def start(self) -> None:
        """Open the log. Raises `Unavailable`, `Denied`, `Corrupt`."""

    async def hand_over(self) -> None:
        """Hand the shards it leads to other brokers, as far as there are any; requests are answered meanwhile."""

    async def must_stop(self) -> str:
        """Return, with the reason, once this process has to end."""

    async def aclose(self) -> None:
        """Commit and answer what is buffered, then release the store."""
