"""The members of the etcd cluster, one connection to each, and the member that is used now.

All calls and watches use the `current` member. When a call finds that this member does not answer, it makes the next
member current, and the watches on the old one end and move, too. Otherwise they would detect a paused machine only by
missing pings.
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
    # etcd disconnects clients that ping more often than every 5 s, or without an active call
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.ping_timeout_ms", 3_000),  # without this one, an answer to a ping is awaited for a minute
    ("grpc.http2.max_pings_without_data", 0),  # else gRPC stops to ping a silent watch after two pings
    ("grpc.http2.bdp_probe", 0),  # sends pings that delay those above
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also the time limit of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),  # a page of a range, or the backlog of a watch, may be large
    ("grpc.max_send_message_length", -1),  # etcd's own limit decides
    ("grpc.enable_retries", 0),  # what may be repeated is decided in `calls`
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two stores of one process share no connection
)


class Endpoint:
    """One member and the connection to it."""

    def __init__(self, target: str, channel: grpc.aio.Channel) -> None:
        self.target = target
        self.channel = channel
        self._cut_streams: set[Callable[[], object]] = set()

    async def settle(self) -> None:
        """Wait until the connection is established or has failed."""
        while (state := self.channel.get_state(try_to_connect=True)) not in _SETTLED:
            await self.channel.wait_for_state_change(state)

    @contextmanager
    def streaming(self, cut: Callable[[], object]) -> Iterator[None]:
        """Marks a running stream; `leave` calls `cut` to end it."""
        self._cut_streams.add(cut)
        try:
            yield
        finally:
            self._cut_streams.discard(cut)

    def cut_streams(self) -> None:
        """End all streams to this member."""
        for cut in tuple(self._cut_streams):
            cut()


_SETTLED = (
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)


class Endpoints:
    """See the module docstring. Must be created on a running event loop; raises `Invalid` for an unreadable file."""

    def __init__(self, settings: EtcdSettings, entropy: Entropy) -> None:
        credentials = _credentials(settings) if settings.tls else None
        self._members = tuple(Endpoint(target, _channel(target, credentials)) for target in settings.targets)
        self._position = int(entropy.uniform(0, len(self._members)))  # so that clients spread over the members
        self.closed = False

    def __len__(self) -> int:
        return len(self._members)

    @property
    def current(self) -> Endpoint:
        """The member that calls use now."""
        return self._members[self._position % len(self._members)]

    def leave(self, endpoint: Endpoint, why: str) -> None:
        """Use the next member, because `endpoint` failed a call. Does nothing if another call has done this already."""
        if endpoint is not self.current or len(self._members) == 1:
            return
        self._position += 1
        _log.debug("etcd: moving from %s to %s: %s", endpoint.target, self.current.target, why)
        endpoint.cut_streams()

    async def aclose(self) -> None:
        """Close all connections and end the calls in progress."""
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
