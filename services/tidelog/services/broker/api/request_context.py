"""The context of a request: its client, its id, and its deadline.

A front door makes one `RequestContext` for each request and passes it to every call on `Broker` that the request
causes. A broker that forwards a call to a peer passes the context on with it. Authentication sets `principal`; ACLs,
quotas and audit read it, so no call goes without a context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ANONYMOUS = "anonymous"
"""The principal of every request while there is no authentication of clients."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`client_id`: how the client names itself, empty if it does not. `deadline_s`: the time on the monotonic clock
    after which the client does not wait any more, None if it did not say. `from_peer`: another broker of this cluster
    forwarded the request and has proved that. `may_forward`: whether this broker may forward the request to the leader;
    if not, it answers or refuses with `NotLeader`, so that no request takes more than one hop."""

    request_id: str
    principal: str = ANONYMOUS
    client_id: str = ""
    deadline_s: float | None = None
    from_peer: bool = False
    may_forward: bool = True

    def not_forwarded(self) -> RequestContext:
        """The same request, to be answered by this broker or refused."""
        return replace(self, may_forward=False) if self.may_forward else self

    def without_deadline(self) -> RequestContext:
        """The same request, for a stream, which lasts as long as its client reads."""
        return self if self.deadline_s is None else replace(self, deadline_s=None)

    def bounded_s(self, timeout_s: float, now_s: float) -> float:
        """`timeout_s`, or the time from `now_s` to the deadline if that is less; never below 0."""
        if self.deadline_s is None:
            return timeout_s
        return max(0.0, min(timeout_s, self.deadline_s - now_s))


BROKER_ITSELF = RequestContext("", principal="broker")
"""For calls that no request causes, for example those for metrics."""
