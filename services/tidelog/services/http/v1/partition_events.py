"""Writes one partition as server-sent events. The id of an event is the offset of its record."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.fetch import Fetched, FetchLimits
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.answers.event_answer import HEARTBEAT, encode_cut_event, encode_event
from tidelog.services.http.answers.record_json import json_records
from tidelog.services.http.answers.record_slices import Group, last_offset, slices_of, written
from tidelog.services.http.forwarding.partition_calls import PartitionRef
from tidelog.services.http.media import Media
from tidelog.storage.errors import TidelogError


class PartitionEvents:
    """A `RecordStream` of events: the records of `first` and all later ones."""

    media = Media.EVENTS

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        ref: PartitionRef,
        first: Fetched,
        limits: FetchLimits,
        *,
        base64: bool,
    ) -> None:
        self._broker = broker
        self._context = context.without_deadline()
        self._ref = ref
        self._first = first
        self._limits = limits
        self._base64 = base64
        self._sent: int | None = None

    async def pieces(self) -> AsyncGenerator[bytes]:
        page = self._first
        while True:
            for piece in slices_of(page.batches):
                yield await written([piece], self._events)
                self._sent = last_offset(piece)
            if not page.batches:
                yield HEARTBEAT
            page = await self._broker.fetch(
                self._context, self._ref.topic, self._ref.partition, page.next_offset, self._limits
            )

    def _events(self, group: Group) -> bytes:
        records = json_records(group, base64=self._base64)
        return b"".join(encode_event(str(record.offset), record) for record in records)

    def last_piece(self, error: TidelogError) -> bytes:
        return encode_cut_event(None if self._sent is None else str(self._sent), error)
