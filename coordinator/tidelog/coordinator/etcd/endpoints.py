"""The members of the etcd cluster, a connection to each, and which of them is spoken to now.

All calls and watches use the `current` member. Whoever finds that it does not answer leaves it, and everyone goes on
with the next one: the watches on it too, which would otherwise notice a paused machine only by missing pings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio

from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.storage.errors import Invalid
from tidelog.storage.runtime import Entropy

_log = logging.getLogger(__name__)

_OPTIONS = (
    # etcd cuts off clients that ping more often than every 5 s, or without a call under way
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.ping_timeout_ms", 3_000),  # the one before alone does not hold; without, it is a minute
    ("grpc.http2.max_pings_without_data", 0),  # else a silent watch is pinged twice and then never more
    ("grpc.http2.bdp_probe", 0),  # pings of its own, behind which those above wait
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also how long one try to connect may take
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),  # a page of a range, and what a watch missed, may be large
    ("grpc.max_send_message_length", -1),  # etcd's own limit decides
    ("grpc.enable_retries", 0),  # what may be repeated is decided in `calls`
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two stores of one process share no connection
)


class Endpoint:
    """One member."""

    def __init__(self, target: str, channel: grpc.aio.Channel) -> None:
        self.target = target
        self.channel = channel
        self._cut_streams: set[Callable[[], object]] = set()

    async def settle(self) -> None:
        """Wait until the connection stands or has failed."""
        while (state := self.channel.get_state(try_to_connect=True)) not in _SETTLED:
            await self.channel.wait_for_state_change(state)

    @contextmanager
    def streaming(self, cut: Callable[[], object]) -> Iterator[None]:
        """While a stream runs: `cut` ends it when the member is left."""
        self._cut_streams.add(cut)
        try:
            yield
        finally:
            self._cut_streams.discard(cut)

    def cut_streams(self) -> None:
        """End what streams there are."""
        for cut in tuple(self._cut_streams):
            cut()


_SETTLED = (
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)


class Endpoints:
    """See the module's head. To be made on a running event loop. Raises `Invalid` for a file that cannot be read."""

    def __init__(self, settings: EtcdSettings, entropy: Entropy) -> None:
        credentials = _credentials(settings) if settings.tls else None
        self._members = tuple(Endpoint(target, _channel(target, credentials)) for target in settings.targets)
        self._position = int(entropy.uniform(0, len(self._members)))  # clients spread over the members
        self.closed = False

    def __len__(self) -> int:
        return len(self._members)

    @property
    def current(self) -> Endpoint:
        """The member to speak to."""
        return self._members[self._position % len(self._members)]

    def leave(self, endpoint: Endpoint, why: str) -> None:
        """`endpoint` did not serve a call: go on with the next, unless somebody has gone on already."""
        if endpoint is not self.current or len(self._members) == 1:
            return
        self._position += 1
        _log.debug("etcd: from %s on to %s: %s", endpoint.target, self.current.target, why)
        endpoint.cut_streams()

    async def aclose(self) -> None:
        """Let go of all connections; calls under way end."""
        self.closed = True
        await asyncio.gather(*(member.channel.close() for member in self._members))


def _channel(target: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)


def _credentials(settings: EtcdSettings) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        _content(settings.ca_file, "etcd.ca.file"),
        _content(settings.key_file, "etcd.key.file"),
        _content(settings.cert_file, "etcd.cert.file"),
    )


def _content(path: str | None, setting: str) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{setting}: {error}", field=setting) from None
