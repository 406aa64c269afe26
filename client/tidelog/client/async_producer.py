"""`AsyncProducer`: `Producer` for asyncio.

async with AsyncProducer("http://127.0.0.1:8080", "web") as producer:
    for line in lines:
        await producer.send(line)              # waits only while the buffer is full
    delivered = await producer.send_and_wait(b"last")
    print(delivered.partition, delivered.offset)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelog.client.async_calls import in_thread
from tidelog.client.batching import Headers
from tidelog.client.broker_access import Broker
from tidelog.client.connection import DEFAULT_BROKER
from tidelog.client.delivery import Delivered
from tidelog.client.delivery_futures import DeliveredRecord
from tidelog.client.producer import Producer
from tidelog.client.producer_options import ProducerOptions
from tidelog.client.refusals import Refused
from tidelog.storage.runtime import Runtime


class AsyncProducer:
    """Sends to one topic. Enter it with ``async with``, or call `start` first. The callbacks run on threads of the
    producer. The other calls are those of `Producer`."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        topic: str = "",
        options: ProducerOptions | None = None,
        *,
        on_delivery: Callable[[Delivered], None] | None = None,
        on_refusal: Callable[[Refused], None] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._make = lambda: Producer(
            broker, topic, options, on_delivery=on_delivery, on_refusal=on_refusal, runtime=runtime
        )
        self._producer: Producer | None = None

    @property
    def held(self) -> Producer:
        """The producer behind this one."""
        if self._producer is None:
            raise RuntimeError("the producer has not started: use `async with`, or await start()")
        return self._producer

    async def start(self) -> None:
        """Look the topic up. Raises `NotFound`, `Invalid`, `Unavailable`."""
        if self._producer is None:
            self._producer = await asyncio.to_thread(self._make)

    async def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Put the record into the batch. It waits only while the buffer is full. Errors as of `Producer.send`."""
        producer = self.held
        if not producer.has_room:
            await asyncio.to_thread(producer.wait_for_room)
        producer.send(value, key, timestamp_ms=timestamp_ms, headers=headers, partition=partition)

    async def send_future(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[DeliveredRecord]:
        """As `send`, with a future of where the record is, or of the error that kept it out of the log."""
        producer = self.held
        if not producer.has_room:
            await asyncio.to_thread(producer.wait_for_room)
        future = producer.send_future(value, key, timestamp_ms=timestamp_ms, headers=headers, partition=partition)
        return asyncio.wrap_future(future)

    async def send_and_wait(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> DeliveredRecord:
        """Send one record and return when it is acknowledged. If the wait is cancelled, the record is sent anyway."""
        return await asyncio.shield(
            await self.send_future(value, key, timestamp_ms=timestamp_ms, headers=headers, partition=partition)
        )

    async def send_batch(self, records: pa.Table | pa.RecordBatch, *, partition: int | None = None) -> None:
        """Append Arrow records; see `Producer.send_batch`. It runs in a thread, because it may split a large table."""
        await asyncio.to_thread(self.held.send_batch, records, partition=partition)

    flush = in_thread(Producer.flush)
    resume = in_thread(Producer.resume)

    async def close(self) -> None:
        """Flush for at most `close_timeout_s` and release threads and sockets. Raises the errors of `flush`."""
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.held.__exit__, kind, error, at)
