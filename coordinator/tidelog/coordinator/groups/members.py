"""The state that the parts of one group share (`GroupContext`), and the interface of both kinds of members (`Members`).

    consumer_members.ConsumerMembers    KIP-848
    classic_members.ClassicMembers      JoinGroup, SyncGroup

`Group` makes the members of its kind as ``ConsumerMembers(context, items)``, where `items` are the values of the
group's member keys, by member id. A group without members may change its kind.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from tidelog.coordinator.groups.group_step import (
    AssignmentTask,
    Change,
    GroupEvent,
    GroupLimits,
    Moment,
    Outcome,
    Reply,
    Ticket,
    Topics,
)
from tidelog.coordinator.groups.stored import StoredHead, head_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Entropy
from tidelog.wire.groups import CommitOffsets, FetchOffsets, GroupDescription, GroupRequest

ALL_CHANGES: frozenset[str] | None = None
"""`Reply.rests_on` of an answer that waits for all changes up to its step."""


class GroupContext:
    """The group's name, limits and head, the moment and topics of the current step, and what the step collects.

    `head` is None while the group does not exist. `set_head` stores it if it changed."""

    def __init__(
        self, name: str, limits: GroupLimits, entropy: Entropy, moment: Moment, head: StoredHead | None = None
    ) -> None:
        self.name = name
        self.limits = limits
        self.entropy = entropy
        self.moment = moment
        self.topics: Topics = {}
        self.head = head
        self._outcome = Outcome()

    def begin(self, moment: Moment, topics: Topics) -> None:
        """A step begins."""
        self.moment = moment
        self.topics = topics

    def put(self, key: str, value: msgspec.Struct) -> None:
        self._change(PutKey(key, msgspec.msgpack.encode(value)))

    def delete(self, key: str) -> None:
        self._change(DeleteKey(key))

    def set_head(self, head: StoredHead) -> None:
        if head != self.head:
            self.head = head
            self.put(head_key(self.name), head)

    def drop_head(self) -> None:
        """The group does not exist any more."""
        self.head = None
        self.delete(head_key(self.name))

    def reply(self, ticket: Ticket, answer: Any, rests_on: frozenset[str] | None = ALL_CHANGES) -> None:
        self._outcome.replies.append(Reply(ticket, answer, None, rests_on))

    def refuse(self, ticket: Ticket, error: TidelogError) -> None:
        """A refusal also depends on all changes: it may show a state that is not stored yet."""
        self._outcome.replies.append(Reply(ticket, None, error, ALL_CHANGES))

    def ask(self, task: AssignmentTask) -> None:
        self._outcome.task = task

    def note(self, event: GroupEvent) -> None:
        self._outcome.events.append(event)

    def take(self) -> Outcome:
        """The changes and replies collected since the last call."""
        outcome, self._outcome = self._outcome, Outcome()
        return outcome

    def _change(self, change: Change) -> None:
        self._outcome.changes.append(change)


class Members(Protocol):
    """The members of a group. A method that raises a `TidelogError` has changed nothing."""

    def handle(self, ticket: Ticket, request: GroupRequest[Any]) -> None:
        """Take a request of this kind of group, and reply now or in a later step. Raises what refuses it."""
        ...

    def check_commit(self, request: CommitOffsets) -> None:
        """Raise unless the group, which has members, accepts the commit from the member that it names."""
        ...

    def check_fetch(self, request: FetchOffsets) -> None:
        """Raise unless the member that the request names is in the group in the epoch that it names."""
        ...

    def keep(self, member_id: str, epoch: int) -> None:
        """Renew the session of a member that is in `epoch` and has its whole target. Raises `StaleMemberEpoch`
        otherwise: the member has to send a heartbeat."""
        ...

    def subscribes(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`, as far as the coordinator can know."""
        ...

    def describe(self) -> GroupDescription:
        """The group with its members."""
        ...

    def withdraw(self, ticket: Ticket) -> None:
        """See `GroupMachine.withdraw`."""
        ...

    def tick(self) -> None:
        """Do what is due at the context's moment, and notice that topics have changed."""
        ...

    def extend_sessions(self) -> None:
        """Give every member a whole session from the context's moment on."""
        ...

    @property
    def due_ms(self) -> int | None:
        """When to call `tick`; None: never."""
        ...

    def __len__(self) -> int:
        """How many members there are, with those that wait to become members."""
        ...
