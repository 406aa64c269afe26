"""Classic groups with two members, from their joins to their end, and lists of groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from tests.kafka.oracle.messages import Each
from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import scenario

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 11, 12, 13, 14, 15, 16
OFFSET_COMMIT, OFFSET_FETCH, DELETE = 8, 9, 42
LAST_JOIN = 9
TOPIC = "of-rebalances"


class Members:
    """Members of one classic group, each with a connection of its own to both brokers."""

    def __init__(self, pair: Pair, group: str) -> None:
        self._pair = pair
        self.group = group
        self.ids: list[Each] = []
        self.generation: Each = Each(-1, -1)

    async def join(self, version: int, member: int | None = None, **fields: Any) -> Each:
        """Join as a new member, or again as `member`. Versions from 4 on give a new member its id first."""
        given = self._join_fields(Each("", "") if member is None else self.ids[member], **fields)
        answers = await self._asked(version, given)
        if answers.kafka.error_code is ErrorCode.member_id_required:
            answers = await self._asked(version, given | {"member_id": _member_id(answers)})
        return answers

    async def _asked(self, version: int, given: dict[str, Any]) -> Each:
        answers = await self._pair.unchecked(JOIN, version, **given)
        self._pair.name("member_id", _member_id(answers), answers.kafka.member_id)
        self._pair.compare(JOIN, version, answers)
        return answers

    def _join_fields(self, member: Each, **fields: Any) -> dict[str, Any]:
        given = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": member,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0"}, {"name": "sticky", "metadata": b"\0\1"}],
        }
        return given | fields

    def adopt(self, answers: Each) -> None:
        self.ids.append(_member_id(answers))
        self.generation = Each(answers.kafka.generation_id, answers.tidelog.generation_id)

    def of(self, member: int, **fields: Any) -> dict[str, Any]:
        return {"group_id": self.group, "generation_id": self.generation, "member_id": self.ids[member]} | fields

    async def leave(self) -> None:
        """The first member leaves."""
        await self._pair.ask(LEAVE, 3, group_id=self.group, members=[{"member_id": self.ids[0]}])

    async def sync(self, version: int, member: int, *parts: bytes) -> Each:
        """`parts`: the assignments of all members, from the leader."""
        assignments = [{"member_id": who, "assignment": part} for who, part in zip(self.ids, parts, strict=False)]
        named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
        return await self._pair.ask(SYNC, version, **self.of(member, **named))


def _member_id(answers: Each) -> Each:
    return Each(answers.kafka.member_id, answers.tidelog.member_id)


@scenario(JOIN)
async def a_classic_group_of_one(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC)
    members = Members(pair, f"one-{version}")
    await pair.coordinator_ready(members.group)
    members.adopt(await members.join(version))
    await members.sync(5, 0, b"all")
    await members.sync(5, 0)
    await pair.ask(HEARTBEAT, 4, **members.of(0))
    await pair.ask(HEARTBEAT, 4, **members.of(0, generation_id=99))
    await pair.ask(HEARTBEAT, 4, **members.of(0, member_id="stranger"))
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    topics = [{"name": TOPIC, "partitions": [part]}]
    for generation in (members.generation, 99):
        commit = {"generation_id_or_member_epoch": generation, "topics": topics}
        await pair.ask(OFFSET_COMMIT, 8, **members.of(0, **commit))
    await pair.ask(DESCRIBE, 5, groups=[members.group], include_authorized_operations=False)
    await pair.ask(DELETE, 2, groups_names=[members.group])
    await pair.ask(LEAVE, 5, **members.of(0, members=[{"member_id": members.ids[0]}, {"member_id": "stranger"}]))
    await pair.ask(DESCRIBE, 5, groups=[members.group], include_authorized_operations=False)
    await pair.ask(DELETE, 2, groups_names=[members.group])
    await pair.ask(DELETE, 2, groups_names=[members.group])


@scenario(SYNC)
async def a_classic_group_of_two(pair: Pair, version: int) -> None:
    members = Members(pair, f"two-{version}")
    await pair.coordinator_ready(members.group)
    members.adopt(await members.join(LAST_JOIN))
    await members.sync(version, 0, b"all")
    async with pair.beside() as other:
        second = Members(other, members.group)
        joining = asyncio.create_task(second.join(LAST_JOIN))
        await pair.rebalances(**members.of(0))
        await members.sync(version, 0)
        again = await members.join(LAST_JOIN, 0)
        second.adopt(await joining)
        members.generation = second.generation
        assert (again.kafka.generation_id, again.tidelog.generation_id) == (2, 2)
        members.ids.append(second.ids[0])
        waiting = asyncio.create_task(second.sync(version, 0))
        await members.sync(version, 0, b"first", b"second")
        await waiting
        await pair.ask(DESCRIBE, 5, groups=[members.group], include_authorized_operations=True)
        await second.leave()
        await pair.ask(HEARTBEAT, 4, **members.of(0))
        await members.leave()


@scenario(LIST)
async def lists_of_groups(pair: Pair, version: int) -> None:
    members = Members(pair, f"listed-{version}")
    await pair.coordinator_ready(members.group)
    members.adopt(await members.join(LAST_JOIN))
    await members.sync(5, 0, b"all")
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty"], ["Stable", "Nonsense"]):
            for types in (["classic"], ["Classic"], ["consumer"], []):
                await _list(pair, version, members.group, states, types)
    await _list(pair, version, members.group, [], [])
    await members.leave()


async def _list(pair: Pair, version: int, group: str, states: list[str], types: list[str]) -> None:
    """Compare what is told of `group`: other scenarios have groups, too."""
    answers = await pair.unchecked(LIST, version, states_filter=states, types_filter=types)
    pair.compare(LIST, version, Each(_only(group, answers.kafka), _only(group, answers.tidelog)))


def _only(group: str, answer: Any) -> Any:
    return replace(answer, groups=tuple(each for each in answer.groups if each.group_id == group))
