"""`AsyncProducer`: `Producer` for asyncio.

async with AsyncProducer("http://127.0.0.1:8080", "web") as producer:
    for line in lines:
        await producer.send(line)              # waits only while the buffer is full
    delivered = await producer.send_and_wait(b"last")
    print(delivered.partition, delivered.offset)
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import pyarrow as pa

from tidelog.client.async_calls import Started, in_thread, parameters_of
from tidelog.client.delivery_futures import DeliveredRecord
from tidelog.client.producer import Producer


class AsyncProducer(Started[Producer]):
    """Sends to one topic. Enter it with ``async with``, or call `start` first. The callbacks run on threads of the
    producer. The other calls are those of `Producer`."""

    @parameters_of(Producer.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(Producer, *args, **kwargs)

    @parameters_of(Producer.send)
    async def send(self, *args: Any, **kwargs: Any) -> None:
        """Put the record into the batch. It waits only while the buffer is full. Errors as of `Producer.send`."""
        producer = self.held
        if not producer.has_room:
            await asyncio.to_thread(producer.wait_for_room)
        producer.send(*args, **kwargs)

    @parameters_of(Producer.send_future)
    async def send_future(self, *args: Any, **kwargs: Any) -> asyncio.Future[DeliveredRecord]:
        """As `send`, with a future of where the record is, or of the error that kept it out of the log."""
        producer = self.held
        if not producer.has_room:
            await asyncio.to_thread(producer.wait_for_room)
        return asyncio.wrap_future(producer.send_future(*args, **kwargs))

    @parameters_of(Producer.send_future)
    async def send_and_wait(self, *args: Any, **kwargs: Any) -> DeliveredRecord:
        """Send one record and return when it is acknowledged. If the wait is cancelled, the record is sent anyway."""
        return await asyncio.shield(await self.send_future(*args, **kwargs))

    async def send_batch(self, records: pa.Table | pa.RecordBatch, *, partition: int | None = None) -> None:
        """Append Arrow records; see `Producer.send_batch`. It runs in a thread, because it may split a large table."""
        await asyncio.to_thread(self.held.send_batch, records, partition=partition)

    flush = in_thread(Producer.flush)
    resume = in_thread(Producer.resume)

    async def close(self) -> None:
        """Flush for at most `close_timeout_s` and release threads and sockets. Raises the errors of `flush`."""
        if self._held is not None:
            await asyncio.to_thread(self._held.close)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.held.__exit__, kind, error, at)
