"""Leases. All three calls may be repeated: to begin a lease's time again, or to end it twice, does no harm, and a new
lease has an id of our own choosing, so that a second try finds the lease of the first."""

from __future__ import annotations

import math

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.calls import Calls
from tidelog.coordinator.etcd.endpoints import Endpoint
from tidelog.coordinator.etcd.rpc import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, Metadata
from tidelog.coordinator.etcd.streams import opened
from tidelog.coordinator.kv.key_value import Lease, LeaseLost
from tidelog.storage.errors import AlreadyExists

_ID_DIGITS = 15
"""Hexadecimal: 60 bits. etcd's ids have 63."""


class Leases:
    """grant, keep_alive and revoke."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def grant(self, ttl_s: float) -> Lease:
        """etcd counts whole seconds, and never fewer than its election takes."""
        lease_id = int(self._calls.runtime.entropy.new_id()[:_ID_DIGITS], 16) or 1
        request = pb.LeaseGrantRequest(id=lease_id, ttl=max(1, math.ceil(ttl_s)))
        try:
            answer = await self._calls.unary(LEASE_GRANT, request, repeatable=True, linearizable=False)
        except AlreadyExists:  # by an earlier try whose answer was lost
            return Lease(lease_id, await self.keep_alive(lease_id))
        return Lease(answer.id, float(answer.ttl))

    async def keep_alive(self, lease_id: int) -> float:
        """A stream for one question: then a stream that broke, or a member that hangs, is this call's own trouble."""

        async def ask(endpoint: Endpoint, metadata: Metadata, timeout_s: float) -> pb.LeaseKeepAliveResponse:
            with opened(self._calls.endpoints, endpoint, LEASE_KEEP_ALIVE, metadata, timeout_s) as stream:
                await stream.send(pb.LeaseKeepAliveRequest(id=lease_id))
                return await stream.receive()

        answer = await self._calls.run(ask, repeatable=True, linearizable=False)
        if answer.ttl <= 0:
            raise LeaseLost(f"lease {lease_id:x} is over")
        return float(answer.ttl)

    async def revoke(self, lease_id: int) -> None:
        """It may be over already."""
        try:
            request = pb.LeaseRevokeRequest(id=lease_id)
            await self._calls.unary(LEASE_REVOKE, request, repeatable=True, linearizable=False)
        except LeaseLost:
            return
