"""Delivers the shares of a request to the leaders of their partitions: those led here together, the others in parallel.

All answers are collected. If some shares failed, the request fails with the first error whose outcome is unknown, and
the error lists the partitions that are in the log. With `ProduceOptions.tell_each` it fails only if all shares failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions, not_appended
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Fenced, Invalid, LeaderUnknown, NotLeader, Overloaded, TidelogError, Unavailable

CALLS_MAX = 32
"""Shares of one request that are sent in parallel."""


class ShareDelivery:
    def __init__(self, local: LocalBroker, peers: Peers, calls: LeaderCalls) -> None:
        self._local = local
        self._peers = peers
        self._calls = calls

    async def deliver(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[Appended]:
        """Append `shares`, whose records are checked already. Raises like `api.Broker.produce`."""
        if len(shares) == 1:
            return (await self._deliver_one(context, topic, shares[0], options),)
        here: list[Share] = []
        there: list[Share] = []
        for share in shares:
            (here if self._local.shards.leads(topic.shards[share.partition]) else there).append(share)
        groups = await asyncio.gather(
            self._deliver_here(context, topic, here, options), self._deliver_apart(context, topic, there, options)
        )
        return _gathered([answer for group in groups for answer in group], options)

    async def _deliver_here(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[Appended]:
        """All of `shares` in one step: all are appended or none."""
        try:
            return await self._local.produce_shares(topic, shares, options) if shares else ()
        except (NotLeader, LeaderUnknown):
            return await self._deliver_apart(context, topic, shares, options)  # one of their shards is moving
        except TidelogError as error:
            return [_failed(share, error) for share in shares]

    async def _deliver_apart(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[Appended]:
        turns = asyncio.Semaphore(CALLS_MAX)

        async def deliver(share: Share) -> Appended:
            async with turns:
                try:
                    return await self._deliver_one(context, topic, share, options)
                except TidelogError as error:
                    return _failed(share, _without_row(error))

        return await asyncio.gather(*(deliver(share) for share in shares))

    async def _deliver_one(
        self, context: RequestContext, topic: Topic, share: Share, options: ProduceOptions
    ) -> Appended:
        to_one = replace(options, partition=share.partition, auto_create=False)

        async def here() -> Appended:
            (appended,) = await self._local.produce_shares(topic, (share,), options)
            return appended

        async def there(leader: Leader) -> Appended:
            appended = await self._peers.produce(context, leader, topic.name, share, to_one)
            return replace(appended, rows=share.rows)

        return await self._calls.write(context, topic.shards[share.partition], here, there)


def _gathered(outcomes: Sequence[Appended], options: ProduceOptions) -> Sequence[Appended]:
    """The answers, ordered by partition. Raises if there is an error among them."""
    answers = sorted(outcomes, key=lambda answer: answer.partition)
    stored = [answer for answer in answers if answer.error is None]
    if len(stored) < len(answers) and not (options.tell_each and stored):
        raise _error_of_request([answer.error for answer in outcomes if answer.error], stored, options.acks)
    return answers


def _failed(share: Share, error: TidelogError) -> Appended:
    return not_appended(share.partition, share.rows, share.records.num_rows, error)


def _without_row(error: TidelogError) -> TidelogError:
    """`error` without its row number, which counts in the share and not in the request."""
    if isinstance(error, Invalid):
        error.record = None
    return error


def _error_of_request(errors: Sequence[TidelogError], answers: Sequence[Appended], acks: Acks) -> TidelogError:
    """The first error whose outcome is unknown, otherwise that a part was not applied, with the partitions that are in
    the log. If nothing was applied, the first error itself."""
    uncertain = [e for e in errors if isinstance(e, Fenced | Unavailable) and not isinstance(e, Overloaded)]
    if not uncertain and not answers:
        return errors[0]
    summary = uncertain[0] if uncertain else Unavailable(f"only a part of the request was applied: {errors[0]}")
    committed = {number for error in uncertain for number in error.committed}
    if acks is Acks.ALL:
        committed.update(answer.partition for answer in answers)
    summary.committed = tuple(sorted(committed))
    return summary
