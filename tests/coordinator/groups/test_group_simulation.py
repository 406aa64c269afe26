"""Consumer groups under seeded trouble in virtual time; see `simulated_group`.

Each mutation removes one rule of the machine. The simulation must notice each of them, or it would prove nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinator.groups.simulated_group import SimulatedGroup
from tests.coordinator.groups.simulated_member import Broken

from tidelog.coordinator.groups.consumer_member import ConsumerMember, partition_set
from tidelog.coordinator.groups.consumer_members import ConsumerMembers
from tidelog.coordinator.groups.group_step import Topics
from tidelog.coordinator.groups.member_roster import MemberRoster
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.reconciliation import Reconciliation
from tidelog.coordinator.groups.subscriptions import Subscription
from tidelog.coordinator.groups.target_assignment import TargetAssignment
from tidelog.storage.errors import MemberFenced
from tidelog.wire.groups import JOIN_EPOCH, Heartbeat

SEEDS = 400
"""Thirteen times as many as it takes to notice each of the mutations."""
SOAK_SEEDS_A_MINUTE = 3_000
BLOCKS = 2
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_group_keeps_its_promises(block: int) -> None:
    _run(range(block, SEEDS, BLOCKS))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_group_keeps_its_promises_for_many_seeds() -> None:
    _run(range(SEEDS, SEEDS + SOAK_SEEDS_A_MINUTE * int(os.environ.get("TIDELOG_SOAK_MINUTES", "1"))))


def _run(seeds: range) -> None:
    for seed in seeds:
        try:
            SimulatedGroup(seed).run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def _every_partition_is_free(patch: pytest.MonkeyPatch) -> None:
    class NobodysPartitions(dict[Any, str]):
        def __contains__(self, key: object) -> bool:
            return False

        def __delitem__(self, key: object) -> None:
            self.pop(key, None)

    before = Reconciliation.__init__

    def init(self: Reconciliation, context: Any) -> None:
        before(self, context)
        self._owners = NobodysPartitions()

    patch.setattr(Reconciliation, "__init__", init)


def _nobody_has_to_confirm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerMember, "yields", property(lambda _self: True))


def _any_known_epoch_confirms(patch: pytest.MonkeyPatch) -> None:
    before = ConsumerMembers._check_epoch

    def check(self: ConsumerMembers, member: ConsumerMember, request: Heartbeat) -> None:
        before(self, member, request)
        if request.owned is not None and self._partitions.confirm(member, partition_set(request.owned)):
            self._roster.store(member)

    patch.setattr(ConsumerMembers, "_check_epoch", check)


def _a_repetition_reconciles(patch: pytest.MonkeyPatch) -> None:
    before = ConsumerMembers._check_epoch

    def check(self: ConsumerMembers, member: ConsumerMember, request: Heartbeat) -> None:
        before(self, member, request)
        if self._partitions.reconcile(member):
            self._roster.store(member)

    patch.setattr(ConsumerMembers, "_check_epoch", check)


def _a_commit_needs_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberRoster, "in_epoch", lambda self, member_id, _epoch: self.members[member_id])


def _a_commit_needs_no_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciliation, "holds", lambda _self, _member, _partition: True)


def _answers_do_not_wait_for_the_store(patch: pytest.MonkeyPatch) -> None:
    before = GroupContext.reply
    patch.setattr(
        GroupContext, "reply", lambda self, ticket, answer, _rests_on=None: before(self, ticket, answer, NONE)
    )


def _a_new_epoch_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    before = MemberRoster.store

    def store(self: MemberRoster, member: ConsumerMember) -> None:
        if member.known_epoch == JOIN_EPOCH:
            before(self, member)

    patch.setattr(MemberRoster, "store", store)


def _epochs_begin_anew_with_a_coordinator(patch: pytest.MonkeyPatch) -> None:
    before = Reconciliation.adopt

    def adopt(self: Reconciliation, member: ConsumerMember) -> None:
        epoch = self._epoch
        before(self, member)
        self._epoch = epoch

    patch.setattr(Reconciliation, "adopt", adopt)


def _the_epoch_before_is_fenced(patch: pytest.MonkeyPatch) -> None:
    def check(self: ConsumerMembers, member: ConsumerMember, request: Heartbeat) -> None:
        if request.member_epoch != member.epoch:
            raise MemberFenced("gone")

    patch.setattr(ConsumerMembers, "_check_epoch", check)


def _sessions_do_not_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberRoster, "renew_session", lambda _self, _member: None)


def _confirmations_are_not_enforced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciliation, "extend", lambda _self, _member: None)


def _a_renewed_topic_is_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciliation, "_renewed", lambda _self, _member: frozenset())


def _patterns_are_looked_at_once(patch: pytest.MonkeyPatch) -> None:
    before = Subscription.resolve

    def resolve(self: Subscription, topics: Topics) -> bool:
        return (self.pattern is not None and bool(self.topics)) or before(self, topics)

    patch.setattr(Subscription, "resolve", resolve)


def _topics_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    before = TargetAssignment.notice_topics

    def notice(self: TargetAssignment) -> None:
        if self._topics is None:
            before(self)

    patch.setattr(TargetAssignment, "notice_topics", notice)


def _a_loaded_target_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetAssignment, "_outdated", lambda _self: False)


def _what_was_taken_comes_back_unseen(patch: pytest.MonkeyPatch) -> None:
    before = Reconciliation.reconcile

    def reconcile(self: Reconciliation, member: ConsumerMember) -> bool:
        member.taken = frozenset()
        return before(self, member)

    patch.setattr(Reconciliation, "reconcile", reconcile)


MUTATIONS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    _every_partition_is_free,
    _nobody_has_to_confirm,
    _any_known_epoch_confirms,
    _a_repetition_reconciles,
    _a_commit_needs_no_epoch,
    _a_commit_needs_no_partition,
    _answers_do_not_wait_for_the_store,
    _a_new_epoch_is_not_stored,
    _epochs_begin_anew_with_a_coordinator,
    _the_epoch_before_is_fenced,
    _sessions_do_not_end,
    _confirmations_are_not_enforced,
    _a_renewed_topic_is_the_same,
    _patterns_are_looked_at_once,
    _topics_are_not_looked_at_again,
    _a_loaded_target_is_not_compared,
    _what_was_taken_comes_back_unseen,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__.strip("_"))
def test_the_simulation_notices_a_rule_that_is_missing(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((Broken, LookupError)):
        _run(range(SEEDS))
