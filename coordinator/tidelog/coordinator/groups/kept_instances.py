"""State of a front door's clients in a group (REST v2: consumer instances), so that any broker serves them.

A state is replaced by comparing its version. It is dropped when no call has used it for its `idle_timeout_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.coordinator.groups.deadlines import Deadlines
from tidelog.coordinator.groups.group_step import Ticket
from tidelog.coordinator.groups.members import GroupContext
from tidelog.coordinator.groups.stored import StoredHead, StoredInstance, instance_key
from tidelog.storage.errors import AlreadyExists, Conflict, Overloaded, UnknownMember
from tidelog.wire.groups import DeleteInstance, Done, InstanceState, ReadInstance, WriteInstance

FULL_RETRY_S = 10.0
NOTHING: frozenset[str] = frozenset()
"""`Reply.rests_on` of an answer that does not wait for the store."""


class KeptInstances:
    """The instances of one group. `items`: the stored values by the instance's name."""

    def __init__(self, context: GroupContext, items: Mapping[str, bytes]) -> None:
        self._context = context
        self._instances = {name: msgspec.msgpack.decode(value, type=StoredInstance) for name, value in items.items()}
        self._loose: set[str] = set()
        """Instances whose last write was not durable."""
        self._idle = Deadlines()
        self.extend()

    def read(self, ticket: Ticket, request: ReadInstance) -> None:
        stored = self._known(request.instance)
        self._use(request.instance)
        self._reply(ticket, request.instance, stored)

    def write(self, ticket: Ticket, request: WriteInstance) -> None:
        if not self._repeats(request):
            self._check(request)
            stored = StoredInstance(request.data, request.version + 1, request.idle_timeout_ms)
            self._instances[request.instance] = stored
            self._loose.discard(request.instance) if request.durable else self._loose.add(request.instance)
            self._context.put(instance_key(self._context.name, request.instance), stored)
            if self._context.head is None:
                self._context.set_head(StoredHead(emptied_at_ms=self._context.moment.now_ms))
        self._use(request.instance)
        self._reply(ticket, request.instance, self._instances[request.instance])

    def delete(self, ticket: Ticket, request: DeleteInstance) -> None:
        self._known(request.instance)
        self._drop(request.instance)
        self._context.reply(ticket, Done())

    def extend(self) -> None:
        """Give every instance its whole idle time from now on."""
        for name in self._instances:
            self._use(name)

    def tick(self) -> None:
        """Drop the instances that were unused for their idle time."""
        for name in self._idle.expired(self._context.moment.monotonic_ms):
            self._drop(name)

    @property
    def due_ms(self) -> int | None:
        return self._idle.due_ms

    def __len__(self) -> int:
        return len(self._instances)

    def _known(self, name: str) -> StoredInstance:
        if name not in self._instances:
            raise UnknownMember(f"the group {self._context.name} has no instance {name}: it was deleted or not used")
        return self._instances[name]

    def _repeats(self, request: WriteInstance) -> bool:
        """Whether this write was carried out before and its answer was lost. To create twice is never a repetition."""
        stored = self._instances.get(request.instance)
        return (
            stored is not None
            and request.version > 0
            and stored == StoredInstance(request.data, request.version + 1, request.idle_timeout_ms)
        )

    def _check(self, request: WriteInstance) -> None:
        if request.version > 0:
            version = self._known(request.instance).version
            if version != request.version:
                raise Conflict(f"the instance {request.instance} is at version {version}, not {request.version}")
        elif request.instance in self._instances:
            raise AlreadyExists(f"the group {self._context.name} has an instance {request.instance}: use another name")
        elif len(self._instances) >= self._context.limits.instances_max:
            raise Overloaded(
                f"the group {self._context.name} has {len(self._instances)} instances, as many as it may have: delete "
                "some, or wait until unused ones are dropped",
                retry_after_s=FULL_RETRY_S,
            )

    def _use(self, name: str) -> None:
        self._idle.set(name, self._context.moment.monotonic_ms + self._instances[name].idle_timeout_ms)

    def _drop(self, name: str) -> None:
        del self._instances[name]
        self._loose.discard(name)
        self._idle.drop(name)
        self._context.delete(instance_key(self._context.name, name))

    def _reply(self, ticket: Ticket, name: str, stored: StoredInstance) -> None:
        """The answer waits for the instance's own key, unless its last write need not be durable."""
        rests_on = NOTHING if name in self._loose else frozenset({instance_key(self._context.name, name)})
        self._context.reply(ticket, InstanceState(stored.data, stored.version), rests_on)
