"""Members of consumer groups: one that sends heartbeats, reads and commits by calls of their own, and one that lives on
polls. They crash, leave, come back, commit in old epochs, and stand still for longer than their session, as a process
that is paused does.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tests.chaos.checker.history import Outcome
from tests.chaos.load.calls import Answer
from tests.chaos.load.group_recorder import (
    FENCED,
    STALE,
    GroupRecorder,
    Place,
    offsets_in,
    offsets_of,
    parts_of,
    places_in,
)
from tests.chaos.load.means import RETRY_PAUSE_S, Means
from tests.chaos.load.readers import read_once, runs_in
from tests.chaos.load.workload import Chance

SESSION_S = 6.0
PAUSE_S = 9.0
"""Longer than a session: others have the partitions when the member goes on."""
LATE_COMMIT = "accepted commit in an epoch that was over"
PAUSES = 40
"""How many steps there are for each pause between a read and its commit."""
WAIT_MS = 500
BODY = {"Content-Type": "application/json", "Accept": "application/json"}


class GroupMember(ABC):
    """A consumer that is started again whenever it has ended. Each of its lives has a member id of its own."""

    def __init__(self, means: Means, name: str, group: str, topic: str) -> None:
        self._means = means
        self._name = name
        self._group = group
        self._topic = topic
        self._chance = Chance(means.workload, name)
        self._recorder = GroupRecorder(means.recorder, group, SESSION_S)
        self._lives = 0
        self._tenures = 0
        self._begin()

    def _begin(self) -> None:
        """Another life."""
        self._lives += 1
        self._member = f"{self._name}-{self._lives}"
        self._drop()

    def _drop(self) -> None:
        """The member has nothing, and joins."""
        self._epoch = 0
        self._positions: dict[Place, int] = {}
        self._sessions: dict[Place, str] = {}

    async def run(self) -> None:
        while not self._means.stopping.is_set():
            answer = await self._step()
            if answer.code in FENCED:
                self._drop()
            elif not answer.ok:
                await asyncio.sleep(RETRY_PAUSE_S)
            elif not await self._trouble():
                await self._means.pause(self._chance.pause_s())
        await self._leave()

    async def _trouble(self) -> bool:
        match self._chance.below(60):
            case 0:
                self._begin()  # a crash
            case 1:
                await self._leave()
                self._begin()
            case 2:
                await self._means.pause(PAUSE_S)
            case _:
                return False
        return True

    @abstractmethod
    async def _step(self) -> Answer: ...

    @abstractmethod
    async def _leave(self) -> None: ...

    async def _call(self, call: str, body: Mapping[str, Any]) -> Answer:
        url = f"{self._chance.broker()}/v1/groups/{self._group}/{call}"
        return await self._means.caller.post(url, json.dumps(body).encode(), BODY)

    def _take(self, place: Place, offset: int) -> None:
        """The member begins to read `place`, as a session of its own for the rules on reading."""
        self._tenures += 1
        self._positions[place] = offset
        self._sessions[place] = f"{self._name}.{self._tenures}"


class CallingMember(GroupMember):
    """Heartbeats, fetches and commits are calls of their own."""

    def _begin(self) -> None:
        super()._begin()
        self._last: tuple[int, dict[Place, int]] = (0, {})
        """An epoch and the positions at some time, for a commit that comes too late."""

    async def _step(self) -> Answer:
        beat = await self._beat()
        if not beat.ok:
            return beat
        for place in self._positions:
            read = await self._read(place)
            if not read.ok:
                return read
        if self._chance.below(PAUSES) == 0:
            await self._means.pause(PAUSE_S)
        return await self._commit_something() if self._positions else beat

    async def _beat(self) -> Answer:
        owned = set(self._positions)
        told = {"topics": [self._topic], "session_timeout_ms": int(SESSION_S * 1000)} if self._epoch == 0 else {}
        answer = await self._call(
            "heartbeat",
            {"member_id": self._member, "member_epoch": self._epoch, "owned": parts_of(owned), **told},
        )
        assigned = places_in(answer.body["assignment"]) if answer.ok else set()
        epoch = answer.body["member_epoch"] if answer.ok else self._epoch
        self._recorder.heartbeat(self._member, owned, assigned, epoch, answer)
        return await self._follow(assigned, epoch, answer) if answer.ok else answer

    async def _follow(self, assigned: set[Place], epoch: int, answer: Answer) -> Answer:
        if epoch != self._epoch and self._epoch:
            self._last = self._epoch, dict(self._positions)
        self._epoch = epoch
        if self._chance.below(2) == 0:
            await self._commit_late()
        lost = {place: at for place, at in self._positions.items() if place not in assigned}
        if lost:
            answer = await self._commit(lost, epoch)
            for place in lost:
                del self._positions[place]
        gained = assigned - set(self._positions)
        return await self._start(gained) if gained else answer

    async def _start(self, gained: set[Place]) -> Answer:
        body = {"partitions": parts_of(gained), "member_id": self._member, "member_epoch": self._epoch}
        answer = await self._call("offsets", body)
        while not answer.ok and answer.expected and not self._means.stopping.is_set():
            await asyncio.sleep(RETRY_PAUSE_S)
            answer = await self._call("offsets", body)
        if answer.ok:
            committed = {(each["topic"], each["partition"]): each["offset"] for each in answer.body["offsets"]}
            for place in gained:
                self._take(place, committed.get(place, 0))
                self._recorder.start(self._member, place, self._positions[place], answer)
        return answer

    async def _read(self, place: Place) -> Answer:
        offset = self._positions[place]
        answer = await read_once(
            self._means.caller, self._means.recorder, self._sessions[place], self._chance.broker(), *place, offset
        )
        if answer.ok:
            self._positions[place] = answer.body["next_offset"]
            given = offsets_in(answer.body["records"])
            self._recorder.read(self._member, place, offset, given, self._epoch, answer, polled=False)
        return answer

    async def _commit_something(self) -> Answer:
        answer = await self._commit(self._positions, self._epoch)
        return answer if answer.code in FENCED else Answer(200, "", answer.start, answer.end)

    async def _commit_late(self) -> None:
        """Commit in an epoch that is over, which the group must refuse."""
        epoch, positions = self._last
        if 0 < epoch < self._epoch and positions:
            answer = await self._commit(positions, epoch)
            self._means.recorder.counts[LATE_COMMIT] += answer.ok

    async def _commit(self, positions: Mapping[Place, int], epoch: int) -> Answer:
        body = {"offsets": offsets_of(positions), "member_id": self._member, "member_epoch": epoch}
        answer = await self._call("commit", body)
        self._recorder.commit(self._member, positions, epoch, answer)
        return answer

    async def _leave(self) -> None:
        answer = await self._call("heartbeat", {"member_id": self._member, "member_epoch": -1})
        self._recorder.heartbeat(self._member, (), (), self._epoch, answer)


class PollingMember(GroupMember):
    """One call does it all."""

    async def _step(self) -> Answer:
        if self._chance.below(PAUSES) == 0:
            await self._means.pause(PAUSE_S)
        sent = dict(self._positions)
        told = {"topics": [self._topic], "session_timeout_ms": int(SESSION_S * 1000)} if self._epoch == 0 else {}
        position = {"member_id": self._member, "member_epoch": self._epoch, "offsets": offsets_of(sent)}
        answer = await self._call(
            "poll", {**position, **told, "from_position": "earliest", "wait_ms": WAIT_MS, "max_records": 500}
        )
        self._record(sent, answer)
        if answer.ok:
            self._follow(answer)
        return Answer(0, "stale", answer.start, answer.end) if answer.code == STALE else answer

    def _record(self, sent: Mapping[Place, int], answer: Answer) -> None:
        """A poll commits what was sent. A partition that the answer does not assign any more may have been left out."""
        assigned = places_in(answer.body["assignment"]) if answer.ok else set()
        epoch = answer.body["member_epoch"] if answer.ok else self._epoch
        self._recorder.heartbeat(self._member, sent, assigned, epoch, answer)
        kept = {place: at for place, at in sent.items() if place in assigned}
        left = {place: at for place, at in sent.items() if place not in assigned}
        self._recorder.commit(self._member, kept, self._epoch, answer)
        self._recorder.commit(self._member, left, self._epoch, answer, Outcome.UNKNOWN)

    def _follow(self, answer: Answer) -> None:
        self._epoch = answer.body["member_epoch"]
        after = {(each["topic"], each["partition"]): each["offset"] for each in answer.body.get("offsets", ())}
        self._positions = {place: at for place, at in self._positions.items() if place in after}
        records: dict[Place, list[Any]] = {}
        for record in answer.body.get("records", ()):
            records.setdefault((record["topic"], record["partition"]), []).append(record)
        for place, next_offset in after.items():
            first = records[place][0]["offset"] if place in records else next_offset
            if place not in self._positions:
                self._take(place, first)
                self._recorder.start(self._member, place, first, answer)
            self._read(place, records.get(place, []), next_offset, answer)

    def _read(self, place: Place, records: list[Any], next_offset: int, answer: Answer) -> None:
        offset = self._positions[place]
        self._positions[place] = next_offset
        if records:
            runs = runs_in({"records": [{"key": None, **record} for record in records]})
            self._means.recorder.streamed(self._sessions[place], *place, offset, runs, answer.end)
        self._recorder.read(self._member, place, offset, offsets_in(records), self._epoch, answer, polled=True)

    async def _leave(self) -> None:
        answer = await self._call("poll", {"member_id": self._member, "member_epoch": self._epoch, "leave": True})
        self._recorder.heartbeat(self._member, (), (), self._epoch, answer)


async def read_committed(means: Means, broker: str, group: str) -> None:
    """Record the offsets that a group has committed at the end."""
    url = f"{broker}/v1/groups/{group}/offsets"
    answer = await means.caller.post(url, b"{}", BODY)
    if not answer.ok:
        raise RuntimeError(f"the final read of the offsets of {group} failed: {answer}")
    recorder = GroupRecorder(means.recorder, group, SESSION_S)
    for each in answer.body["offsets"]:
        recorder.start("final", (each["topic"], each["partition"]), each["offset"], answer)
