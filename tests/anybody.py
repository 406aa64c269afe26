"""The request contexts that tests use when they call a `Broker` themselves."""

from tidelog.services.broker.api.request_context import RequestContext

ANYBODY = RequestContext("a-test")
"""A client's request, without a deadline."""
FORWARDED = RequestContext("a-test", from_peer=True, may_forward=False)
"""A request that another broker has forwarded."""
