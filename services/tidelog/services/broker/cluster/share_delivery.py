"""A request's shares, each delivered to the leader of its partition: those led here together, the others side by side.

All answers are gathered. A request whose parts fared differently fails with what became of the first that failed, and
says which partitions are in the log: as with one broker, what it may not do is to hide that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.produce import Acks, Appended, ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.peers import Peers
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Fenced, Invalid, LeaderUnknown, NotLeader, Overloaded, TidelogError, Unavailable

CALLS_MAX = 32
"""Shares of one request that are on their way at a time."""

_Outcome = Appended | TidelogError


class ShareDelivery:
    """See the module's head."""

    def __init__(self, local: LocalBroker, peers: Peers, calls: LeaderCalls) -> None:
        self._local = local
        self._peers = peers
        self._calls = calls

    async def deliver(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[Appended]:
        """Append `shares`, which were admitted. Raises what `api.Broker.produce` lists."""
        if len(shares) == 1:
            return (await self._deliver_one(context, topic, shares[0], options),)
        here: list[Share] = []
        there: list[Share] = []
        for share in shares:
            (here if self._local.shards.leads(topic.shards[share.partition]) else there).append(share)
        groups = await asyncio.gather(
            self._deliver_here(context, topic, here, options), self._deliver_apart(context, topic, there, options)
        )
        return _gathered([outcome for group in groups for outcome in group], options.acks)

    async def _deliver_here(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[_Outcome]:
        """All of `shares` in one step: all are taken or none."""
        try:
            return await self._local.produce_shares(topic, shares, options) if shares else ()
        except (NotLeader, LeaderUnknown):
            return await self._deliver_apart(context, topic, shares, options)  # one of their shards moves
        except TidelogError as error:
            return (error,)

    async def _deliver_apart(
        self, context: RequestContext, topic: Topic, shares: Sequence[Share], options: ProduceOptions
    ) -> Sequence[_Outcome]:
        turns = asyncio.Semaphore(CALLS_MAX)

        async def deliver(share: Share) -> _Outcome:
            async with turns:
                try:
                    return await self._deliver_one(context, topic, share, options)
                except TidelogError as error:
                    return _without_row(error)

        return await asyncio.gather(*(deliver(share) for share in shares))

    async def _deliver_one(
        self, context: RequestContext, topic: Topic, share: Share, options: ProduceOptions
    ) -> Appended:
        to_one = replace(options, partition=share.partition, auto_create=False)

        async def here() -> Appended:
            (appended,) = await self._local.produce_shares(topic, (share,), options)
            return appended

        async def there(leader: Leader) -> Appended:
            return await self._peers.produce(context, leader, topic.name, share, to_one)

        return await self._calls.write(context, topic.shards[share.partition], here, there)


def _gathered(outcomes: Sequence[_Outcome], acks: Acks) -> Sequence[Appended]:
    """The answers by partition; raises if there is an error among them."""
    answers = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    errors = [outcome for outcome in outcomes if isinstance(outcome, TidelogError)]
    if errors:
        raise _told(errors, answers, acks)
    return tuple(sorted(answers, key=lambda answer: answer.partition))


def _without_row(error: TidelogError) -> TidelogError:
    """`error` of one share. A row of a share says nothing about the rows of the request."""
    if isinstance(error, Invalid):
        error.record = None
    return error


def _told(errors: Sequence[TidelogError], answers: Sequence[Appended], acks: Acks) -> TidelogError:
    """What became of the request: the first error whose outcome is unknown, else that a part of it was not taken, with
    the partitions that are known to be in the log; the first error itself if nothing was taken."""
    uncertain = [e for e in errors if isinstance(e, Fenced | Unavailable) and not isinstance(e, Overloaded)]
    if not uncertain and not answers:
        return errors[0]
    told = uncertain[0] if uncertain else Unavailable(f"a part of the request was not taken: {errors[0]}")
    committed = {number for error in uncertain for number in error.committed}
    if acks is Acks.ALL:
        committed.update(answer.partition for answer in answers)
    told.committed = tuple(sorted(committed))
    return told
