"""Reads and writes the state of a consumer instance, which the group's coordinator keeps.

A write compares versions: if another call has changed the state meanwhile, the change is made again on the new state.
So two calls of one client that overtake each other never undo one another. The coordinator takes an equal write at the
same version for a repetition of the first, so each write has an id of its own: two reads that found the same records
must not both succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tidelog.services.broker.api.broker import Broker
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.http.kafka_rest.instances.instance_state import Instance
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.storage.errors import AlreadyExists, Conflict, Corrupt, UnknownMember
from tidelog.storage.runtime import Entropy
from tidelog.wire.groups import DeleteInstance, ReadInstance, WriteInstance

ATTEMPTS_MAX = 20
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[str, Instance])


@dataclass(frozen=True)
class KeptInstance:
    """An instance as it was read. `name`: that of the instance in its group."""

    context: RequestContext
    group: str
    name: str
    state: Instance
    version: int

    def with_state(self, state: Instance) -> KeptInstance:
        return replace(self, state=state)


class InstanceStore:
    """The instances of all groups. `idle_ms`: an instance that is unused for so long is dropped."""

    def __init__(self, broker: Broker, idle_ms: int, entropy: Entropy) -> None:
        self._broker = broker
        self._idle_ms = idle_ms
        self._entropy = entropy

    def new_id(self) -> str:
        return self._entropy.new_id()

    async def create(self, context: RequestContext, group: str, name: str, state: Instance) -> None:
        """Raises `RestError` (40902)."""
        try:
            await self._write(KeptInstance(context, group, name, state, 0), durable=True)
        except AlreadyExists:
            raise RestError(
                Code.INSTANCE_EXISTS,
                f"Consumer instance already exists: the group {group} has an instance {name}. Use another name, or "
                "delete it",
            ) from None

    async def read(self, context: RequestContext, group: str, name: str) -> KeptInstance:
        """Raises `RestError` (40403)."""
        try:
            kept = await self._broker.groups.call(context, group, ReadInstance(instance=name))
        except UnknownMember as error:
            raise _missing(error) from None
        try:
            return KeptInstance(context, group, name, _DECODER.decode(kept.data)[1], kept.version)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"instance {name} of group {group}", str(error)) from None

    async def write(self, kept: KeptInstance, *, durable: bool = True, as_member: bool = False) -> KeptInstance:
        """Replace the state. `as_member`: the write is a heartbeat, too; it raises `StaleMemberEpoch` if the assignment
        changes. Raises `Conflict` if another call has changed the state, `RestError` (40403)."""
        try:
            return await self._write(kept, durable=durable, as_member=as_member)
        except UnknownMember as error:
            raise _missing(error) from None

    async def change(
        self, context: RequestContext, group: str, name: str, change: Callable[[KeptInstance], Instance]
    ) -> KeptInstance:
        """Replace the state by `change` of the instance, which may be called several times. Raises its errors, and
        `RestError` (40403)."""
        for attempt in range(ATTEMPTS_MAX):
            kept = await self.read(context, group, name)
            try:
                return await self.write(replace(kept, state=change(kept)))
            except Conflict:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def delete(self, kept: KeptInstance) -> None:
        """Raises `RestError` (40403)."""
        try:
            await self._broker.groups.call(kept.context, kept.group, DeleteInstance(instance=kept.name))
        except UnknownMember as error:
            raise _missing(error) from None

    async def _write(self, kept: KeptInstance, *, durable: bool, as_member: bool = False) -> KeptInstance:
        request = WriteInstance(
            instance=kept.name,
            data=_ENCODER.encode((self._entropy.new_id(), kept.state)),
            version=kept.version,
            idle_timeout_ms=self._idle_ms,
            durable=durable,
            member_id=kept.state.member_id if as_member else "",
            member_epoch=kept.state.member_epoch,
        )
        written = await self._broker.groups.call(kept.context, kept.group, request)
        return replace(kept, version=written.version)


def _missing(error: UnknownMember) -> RestError:
    return RestError(Code.INSTANCE_NOT_FOUND, f"Consumer instance not found. {error}")
