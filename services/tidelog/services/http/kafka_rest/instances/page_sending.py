"""Sends a page, and records whether it was sent, so that a broker's death loses no record.

A read writes the new positions before it answers. If the broker dies between the two, no client has the records, and
the next read would begin after them. So the state records that a page is being sent, and by which broker:

    write: positions after the page, unsent ─▶ send the body ─▶ write: sent
                                            └▶ the client is gone ─▶ write: the positions before the page

A read that finds an unsent page waits for the broker that sends it. If that broker is gone, or another one that does
not answer for long (`instance_reads.SETTLED_MS`), the page is read again. So a client that got the page as its broker
died may get it twice, but no page is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.kafka_rest.instances.instance_state import (
    Instance,
    SendingBroker,
    UnsentPage,
    rewound,
    sent,
)
from tidelog.services.http.kafka_rest.instances.kept_instance import InstanceStore, KeptInstance
from tidelog.services.http.listener.waiting_requests import has_left
from tidelog.storage.errors import Conflict, TidelogError
from tidelog.storage.runtime import Clock

SEND_S_MAX = 30.0
"""A client that takes no bytes for so long counts as gone."""
SENT_MS_MAX = 40_000
"""A page that was not sent by then is read again, even if its broker lives: it could not record the outcome."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PageToSend:
    """`body`: the page. `kept`: the instance as it was written; without an unsent page if the page is empty."""

    body: bytes
    kept: KeptInstance


class Senders:
    """Which broker sends a page, and whether it still can. `process`: an id of this process."""

    def __init__(self, broker: Broker, process: str, own_address: str, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._process = process
        self._own_address = own_address
        self._me: SendingBroker | None = None

    def me(self, context: RequestContext) -> SendingBroker:
        if self._me is None:
            places = self._broker.cluster(context).brokers
            mine = next((place for place in places if place.address == self._own_address), None)
            if mine is None:
                return SendingBroker("", 0, self._process)
            self._me = SendingBroker(mine.broker_id, mine.started_at_ms, self._process)
        return self._me

    def is_here(self, unsent: UnsentPage) -> bool:
        """Whether this process is to send the page."""
        return unsent.process == self._process

    def is_gone(self, context: RequestContext, unsent: UnsentPage) -> bool:
        """Whether the broker that was to send the page cannot send it any more."""
        if not 0 <= self._clock.now_ms() - unsent.at_ms < SENT_MS_MAX:
            return True
        if self.is_here(unsent):
            return False
        mine = self.me(context).broker_id
        if unsent.broker_id == mine:
            return True  # an earlier process of this broker
        places = self._broker.cluster(context).brokers
        return all(
            (place.broker_id, place.started_at_ms) != (unsent.broker_id, unsent.started_at_ms) for place in places
        )


class PageAnswer(Response):
    """Sends `page` and writes whether it was sent."""

    def __init__(self, page: PageToSend, store: InstanceStore, media_type: str) -> None:
        super().__init__(page.body, media_type=media_type)
        self._page = page
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unsent = self._page.kept.state.unsent
        if unsent is None:
            await super().__call__(scope, receive, send)
            return
        done = False
        try:
            async with asyncio.timeout(SEND_S_MAX):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body, "more_body": True})
                done = not has_left(receive)
        finally:
            await asyncio.shield(self._account(sent if done else rewound, unsent.page))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _account(self, change: Callable[[Instance, str], Instance], page: str) -> None:
        """Write that the page was sent, or was not. If that fails, the page may be answered again."""
        try:
            await written(self._store, self._page.kept, lambda state: change(state, page))
        except TidelogError as error:
            logger.info("a page of a consumer instance may be answered again: %s", error)


async def written(store: InstanceStore, kept: KeptInstance, change: Callable[[Instance], Instance]) -> None:
    """Change the state of `kept`, by one call if no other call has changed it."""
    try:
        await store.write(kept.with_state(change(kept.state)), durable=False)
    except Conflict:
        await store.change(kept.context, kept.group, kept.name, lambda now: change(now.state))
