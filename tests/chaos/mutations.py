"""Wrong brokers, each with one mistake. A chaos run must find every one of them (`sabotage.py`).

A mutation replaces one method in the process of a broker. `broker_start/sitecustomize.py` applies those that the
environment variable `MUTATION` names. The product does not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.chaos.mutation_names import AND

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.consumer_member import ConsumerMember
from tidelog.coordinator.groups.etcd_group_store import EtcdGroupStore
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.member_roster import MemberRoster
from tidelog.coordinator.groups.stored import is_offset
from tidelog.services.broker.api.fetch import FetchedPart
from tidelog.services.broker.api.produce import PartDraft
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.read.partition_reader import PartitionReader, Partitions
from tidelog.services.broker.read.read_budget import ReadBudget
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.services.consuming.member_poll import MemberPoll, PolledRecords
from tidelog.services.consuming.member_polls import MemberPolls
from tidelog.services.kafka.apis import fetch, fetched_batches
from tidelog.services.kafka.apis.produce import ProduceApi
from tidelog.services.kafka.apis.produced_batches import RefusedPart
from tidelog.services.kafka.protocol.fetch_messages import KafkaPart
from tidelog.services.kafka.protocol.produce_messages import ProducePart
from tidelog.storage.layout import TopicPartition


def _accept_commits_of_old_epochs() -> None:
    """The coordinator checks that a commit comes from a member, and not its epoch."""

    def in_epoch(self: MemberRoster, member_id: str, epoch: int) -> ConsumerMember:
        return self.members.get(member_id) or self._absent(member_id)

    MemberRoster.in_epoch = in_epoch  # type: ignore[method-assign]


def _assign_before_revoke_is_confirmed() -> None:
    """The coordinator takes partitions from a member, and gives them to others, before the member knows."""
    ConsumerMember.yields = property(lambda _: True)  # type: ignore[method-assign, assignment]


def _forget_offsets_at_takeover() -> None:
    """A coordinator that loads a group leaves out its offsets."""

    def forgetful(store: type[GroupStore]) -> None:
        load = store.load

        async def without_offsets(self: GroupStore, group: str) -> Mapping[str, bytes]:
            return {key: value for key, value in (await load(self, group)).items() if not is_offset(key)}

        store.load = without_offsets  # type: ignore[method-assign]

    forgetful(EtcdGroupStore)
    forgetful(BucketGroupStore)


def _commit_past_what_was_read() -> None:
    """A poll leaves out the last record that it read, and its position, which the next poll commits, lies behind it."""
    answer = MemberPolls.poll

    async def poll(self: MemberPolls, context: RequestContext, group: str, asked: MemberPoll) -> PolledRecords:
        polled = await answer(self, context, group, asked)
        return replace(polled, parts=[_without_last_record(part) for part in polled.parts])

    MemberPolls.poll = poll  # type: ignore[method-assign]


def _without_last_record(part: FetchedPart) -> FetchedPart:
    if part.fetched is None or not part.fetched.batches:
        return part
    *others, last = part.fetched.batches
    return replace(part, fetched=replace(part.fetched, batches=[*others, last.slice(0, last.num_rows - 1)]))


def _skip_a_batch_after_takeover() -> None:
    """The first read of an entry that this broker did not write itself passes over the entry, once a partition."""
    read_span = PartitionReader._read_span
    skipped: set[TopicPartition] = set()

    async def skipping(
        self: PartitionReader, partitions: Partitions, state: PartitionState, offset: int, budget: ReadBudget
    ) -> int:
        span = next(state.spans_from(offset))
        if state.topic_partition in skipped or self._entries.in_memory(span.entry) is not None:
            return await read_span(self, partitions, state, offset, budget)
        skipped.add(state.topic_partition)
        return span.next_offset

    PartitionReader._read_span = skipping  # type: ignore[method-assign]


def _leave_out_records_for_kafka() -> None:
    """A Fetch of a client of Kafka leaves out the last record that it read, or batches that it could serve as they were
    sent, and goes on behind them."""
    encode = fetched_batches.encoded_parts

    def encoded(fetched: Sequence[FetchedPart], epochs: Sequence[int]) -> Sequence[KafkaPart]:
        return encode([_without_sent(_without_last_record(part)) for part in fetched], epochs)

    fetch.encoded_parts = encoded  # type: ignore[attr-defined]


def _without_sent(part: FetchedPart) -> FetchedPart:
    return part if part.fetched is None else replace(part, fetched=replace(part.fetched, sent=()))


def _forget_sequences_of_kafka() -> None:
    """The records of an idempotent producer of Kafka are appended without their sequence."""
    drafts = ProduceApi._drafts

    async def without_sequence(
        self: ProduceApi, parts: Sequence[ProducePart], size: int
    ) -> Sequence[PartDraft | RefusedPart]:
        made = await drafts(self, parts, size)
        return [replace(draft, producer=None) if isinstance(draft, PartDraft) else draft for draft in made]

    ProduceApi._drafts = without_sequence  # type: ignore[method-assign]


def mutate(names: str) -> None:
    """Apply the mutations of these names."""
    for name in names.split(AND):
        MUTATIONS[name]()


MUTATIONS: Mapping[str, Callable[[], None]] = {
    "accepts commits of old epochs": _accept_commits_of_old_epochs,
    "assigns before revoke is confirmed": _assign_before_revoke_is_confirmed,
    "forgets offsets at takeover": _forget_offsets_at_takeover,
    "commits past what was read": _commit_past_what_was_read,
    "skips a batch after takeover": _skip_a_batch_after_takeover,
    "leaves out records for Kafka": _leave_out_records_for_kafka,
    "forgets sequences of Kafka": _forget_sequences_of_kafka,
}
