"""The objects that all routes share, as one value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from tidelog.services.broker.api.broker import Broker
from tidelog.services.http.bodies.body_reading import BodyReader
from tidelog.services.http.bodies.decoding import Decoding, added_bytes
from tidelog.services.http.front.request_context import context_of
from tidelog.services.http.front.request_measurements import RequestMeasurements
from tidelog.services.http.listener.waiting_requests import WaitingRequests
from tidelog.services.peers.proof import PeerProofs
from tidelog.services.settings.settings import Settings
from tidelog.storage.runtime import Runtime

if TYPE_CHECKING:
    from tidelog.services.peers.pool import PeerPool

WAITERS_SHARE = 0.9
"""The share of ``connections.max`` that may wait, so that connections are left for other requests."""
SHARE_RECORD_BYTES = 32
"""The most that a record takes in Arrow besides its key, value and headers: offsets, validity, timestamp."""


@dataclass(frozen=True)
class Service:
    """A broker with the bounds of its HTTP interface. `peers`: None for a broker without peers. `forwarded`: the number
    of forwarded requests, by method."""

    broker: Broker
    settings: Settings
    runtime: Runtime
    bodies: BodyReader
    waiting: WaitingRequests
    decoding: Decoding
    problems: Counter[tuple[int, str]]
    requests: RequestMeasurements
    peers: PeerPool | None = None
    forwarded: Counter[str] = field(default_factory=Counter)

    async def aclose(self) -> None:
        """Release the connections to peers and the decoding threads."""
        if self.peers:
            await self.peers.aclose()
        self.decoding.shutdown(wait=False, cancel_futures=True)

    def body_limit_bytes(self, request: Request) -> int:
        """The bound for the request's body. A share from a peer may be larger than the client's body: it is Arrow, with
        a timestamp per record."""
        given = self.settings.request_max_bytes
        share_bytes = SHARE_RECORD_BYTES * self.settings.request_max_records
        return given + share_bytes if context_of(request).from_peer else given


def open_service(broker: Broker, settings: Settings, runtime: Runtime, proofs: PeerProofs) -> Service:
    """Make the service. Whatever the settings are, the memory for bodies holds one body: as it arrived, expanded and
    decoded."""
    body_bytes, records_max = settings.request_max_bytes, settings.request_max_records
    in_flight_bytes_max = max(settings.buffer_max_bytes, 2 * body_bytes + added_bytes(body_bytes, records_max))
    return Service(
        broker=broker,
        settings=settings,
        runtime=runtime,
        bodies=BodyReader(body_bytes, in_flight_bytes_max, settings.request_read_timeout_ms / 1000),
        waiting=WaitingRequests(max(1, int(WAITERS_SHARE * settings.connections_max))),
        decoding=Decoding(records_max),
        problems=Counter(),
        requests=RequestMeasurements(runtime.clock),
        peers=_open_pool(proofs, runtime) if settings.etcd_endpoints else None,
    )


def _open_pool(proofs: PeerProofs, runtime: Runtime) -> PeerPool:
    """Imported here, because the library takes 10 MiB of memory and a broker without peers does not need it."""
    from tidelog.services.peers.pool import PeerPool

    return PeerPool(proofs, runtime.clock)
