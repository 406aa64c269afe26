"""A front door in fifty lines: ``PUT topic partition value`` and ``GET topic partition offset``, over TCP."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Draft, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.doors.front_door import ServedBroker, authority, bound_socket
from tidelog.services.settings.settings import Settings
from tidelog.storage.errors import TidelogError
from tidelog.storage.records import DRAFT_SCHEMA

ONE = FetchLimits(max_records=1, max_bytes=1 << 20)


class LineDoor:
    def bind(self, settings: Settings) -> Settings:
        self._socket = bound_socket(settings.host, 0, "--line-port")
        self.address = f"tcp://{authority(*self._socket.getsockname()[:2])}"
        return settings

    async def serve(self, broker: ServedBroker, settings: Settings) -> None:
        self._broker, self._ended = broker, asyncio.Event()
        async with await asyncio.start_server(self._connection, sock=self._socket):
            await self._ended.wait()

    def drain(self) -> None:
        self._ended.set()

    abort = drain

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                writer.write(await self._answer(RequestContext("line"), *line.decode().split()) + b"\n")
            except (TidelogError, TypeError, ValueError) as error:
                writer.write(f"ERROR {error}\n".encode())
        writer.close()

    async def _answer(self, context: RequestContext, verb: str, topic: str, partition: str, argument: str) -> bytes:
        if verb == "GET":
            page = await self._broker.fetch(context, topic, int(partition), int(argument), ONE)
            return pa.Table.from_batches(page.batches)["value"][0].as_py() if page.batches else b""
        records = pa.Table.from_pylist([{"value": argument.encode()}], DRAFT_SCHEMA)  # the rest is null
        draft, options = Draft(records, None, records.nbytes), ProduceOptions(partition=int(partition))
        (appended,) = await self._broker.produce(context, topic, draft, options)
        return b"%d" % appended.base_offset
