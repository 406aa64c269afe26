"""The base of APIs whose requests have no order relative to those before and after them on a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.service import KafkaService


class ImmediateApi(ABC):
    """Places a request at once. See `protocol.api.Api`."""

    def __init__(self, service: KafkaService) -> None:
        self._service = service
        self._broker = service.broker

    async def answer(self, call: Call) -> Awaitable[Answer]:
        return self.reply(call)

    @abstractmethod
    async def reply(self, call: Call) -> Answer:
        """The answer to `call`. Raises `Malformed`."""
