"""The token that proves who we are: fetched with user and password when it is needed, and again when it is refused."""

from __future__ import annotations

import asyncio

import grpc.aio

from tidelog.coordinator.etcd import rpc_pb2 as pb
from tidelog.coordinator.etcd.rpc import AUTHENTICATE, Metadata
from tidelog.coordinator.etcd.settings import EtcdSettings

_REQUIRE_LEADER = ("hasleader", "true")
"""A member that is cut off from the others refuses at once and ends its watches, instead of answering nothing."""


class Tokens:
    """One token for all calls; one request for it at a time."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        self._token: str | None = None if settings.username else ""  # "": none is needed
        self._fetching = asyncio.Lock()

    async def metadata(self, channel: grpc.aio.Channel, timeout_s: float) -> Metadata:
        """What goes with every call. Raises `AioRpcError`."""
        if self._token is None:
            async with self._fetching:
                if self._token is None:
                    self._token = await self._fetched(channel, timeout_s)
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else (_REQUIRE_LEADER,)

    def forget(self, refused: Metadata) -> None:
        """The token in `refused` was refused; another may have replaced it since."""
        if self._settings.username and ("token", self._token or "") in (*refused, ("token", "")):
            self._token = None

    async def _fetched(self, channel: grpc.aio.Channel, timeout_s: float) -> str:
        request = pb.AuthenticateRequest(name=self._settings.username or "", password=self._settings.password or "")
        try:
            answer = await AUTHENTICATE.on(channel)(request, timeout=timeout_s, metadata=(_REQUIRE_LEADER,))
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" in (error.details() or ""):
                return ""  # etcd lets everybody in: as its own client does, go on without
            raise
        return answer.token
