"""Which records a consumer fetches next, and which it gives out next: a pure core without I/O and clock.

`Reading` keeps a position for each assigned partition. Fetching threads take a `FetchPlan` for one broker and report
its answer by `fetched` or `failed`; the program's thread takes `next_part`. Fetching goes on while the program works,
until `buffer_bytes` are buffered.

A partition is in at most one fetch at a time, so its parts are buffered in order. A seek, a pause or a revocation
begins a new turn of the partition; parts that were fetched in an earlier turn are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.client.consumed import TopicPartition
from tidelog.client.fetched_parts import NO_BODY, Body, FetchPlan, Part, PartOutcome, PlannedPart
from tidelog.storage.errors import (
    Fenced,
    NotLeader,
    OutOfRange,
    Overloaded,
    RecordsLost,
    TidelogError,
    Unavailable,
)

RETRY_S = 0.25
"""After a fetch that failed: when its partitions are fetched again."""
FETCHES_PER_BROKER_MAX = 2
"""Two, each with half of the partitions, so that a broker prepares an answer while another one is on its way."""


@dataclass
class _State:
    """A partition. `position`: the next record to give out, None until the broker has resolved it. `done`: the records
    before it were given out by an earlier poll."""

    at: int | str
    position: int | None
    turn: int
    done: int | None = None
    fetching: bool = False
    blocked: bool = False
    paused: bool = False
    retry_at: float = 0.0
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass
class Reading:
    """`reset_to`: where to go on when the log no longer holds a position; None: `next_part` raises `OutOfRange`."""

    buffer_bytes: int
    reset_to: str | None
    _states: dict[TopicPartition, _State] = field(default_factory=dict)
    _ready: deque[Part] = field(default_factory=deque)
    _bodies: dict[int, tuple[Body, int]] = field(default_factory=dict)
    _under_way: dict[str, int] = field(default_factory=dict)
    _turns: int = 0
    _buffered_bytes: int = 0

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(one for one, state in self._states.items() if state.paused)

    @property
    def positions(self) -> Mapping[TopicPartition, int | None]:
        return {one: state.position for one, state in self._states.items()}

    def where(self, partition: TopicPartition) -> int | str:
        """The position; or, before a broker has resolved it, the words for it."""
        state = self._states[partition]
        return state.at if state.position is None else state.position

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """Log start and high watermark in the partition's last answer; -1 before it."""
        state = self._states[partition]
        return state.log_start_offset, state.high_watermark

    def assign(self, starts: Mapping[TopicPartition, int | str]) -> None:
        """Begin to read partitions."""
        for partition, at in starts.items():
            self._states[partition] = _State(at, at if isinstance(at, int) else None, self._next_turn())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions."""
        for partition in partitions:
            self._states.pop(partition, None)

    def seek(self, partition: TopicPartition, at: int | str) -> None:
        """Go on at `at`. A partition that is not assigned is a `KeyError`."""
        state = self._states[partition]
        state.at, state.position = at, at if isinstance(at, int) else None
        state.done = state.position
        self._begin_turn(state)

    def pause(self, partition: TopicPartition, *, paused: bool) -> None:
        """Stop or go on giving out a partition's records, which stays assigned."""
        state = self._states[partition]
        if state.paused != paused:
            state.paused = paused
            if state.position is not None:
                state.at = state.position
            self._begin_turn(state)

    def plan(self, now: float, leader_of: Callable[[TopicPartition], str]) -> FetchPlan | None:
        """The next fetch; None if every partition is under way, paused or waiting, or the buffer is full."""
        if self._buffered_bytes >= self.buffer_bytes:
            return None
        by_leader: dict[str, list[PlannedPart]] = {}
        for partition, state in self._states.items():
            if not (state.fetching or state.paused or state.blocked) and state.retry_at <= now:
                leader = leader_of(partition)
                by_leader.setdefault(leader, []).append(PlannedPart(partition, state.at, state.turn))
        for leader, parts in sorted(by_leader.items(), key=lambda item: self._under_way.get(item[0], 0)):
            free = FETCHES_PER_BROKER_MAX - self._under_way.get(leader, 0)
            if free:
                return self._begin(FetchPlan(leader, tuple(parts[: -(-len(parts) // free)])))
        return None

    def retry_at(self, now: float) -> float | None:
        """When the next partition that waits after an error can be fetched again."""
        return min((state.retry_at for state in self._states.values() if state.retry_at > now), default=None)

    def fetched(self, plan: FetchPlan, outcomes: Mapping[TopicPartition, PartOutcome], body: Body, now: float) -> None:
        """Take in the answer to `plan`."""
        self._end(plan)
        for planned in plan.parts:
            state, outcome = self._current(planned), outcomes.get(planned.partition)
            if state is None:
                continue
            state.fetching = False
            if outcome is None or outcome.error is not None:
                error = outcome.error if outcome else Unavailable(f"the broker did not answer for {planned.partition}")
                self._refused(planned, state, error or Unavailable(""), now)
                continue
            state.retry_at = 0.0
            state.high_watermark, state.log_start_offset = outcome.high_watermark, outcome.log_start_offset
            if outcome.next_offset is not None and outcome.next_offset != planned.at:
                state.at = outcome.next_offset
                if state.position is None:
                    first = body.first_offset(planned.partition)
                    state.position = outcome.next_offset if first is None else first
                self._put(Part(planned.partition, planned.turn, outcome, body))
                self._states[planned.partition] = self._states.pop(planned.partition)  # others come first next time

    def failed(self, plan: FetchPlan, error: TidelogError, now: float, *, fatal: bool) -> None:
        """The fetch of `plan` failed. `fatal`: the program gets the error; otherwise it is repeated."""
        self._end(plan)
        for planned in plan.parts:
            if (state := self._current(planned)) is not None:
                state.fetching, state.retry_at = False, now + RETRY_S
                if fatal:
                    self._block(planned, state, error)

    def next_part(self) -> Part | None:
        """The next part with records, or one whose error the program gets; the position moves behind it."""
        while self._ready:
            part = self._ready.popleft()
            state = self._states.get(part.partition)
            self._release(part.body)
            if state is None or state.turn != part.turn:
                continue
            if part.outcome.error is not None:
                state.blocked = False
                return part
            state.position = part.outcome.next_offset
            return part
        return None

    def is_current(self, part: Part) -> bool:
        """Whether the partition is still assigned, and was not sought or paused since `part` was fetched."""
        state = self._states.get(part.partition)
        return state is not None and state.turn == part.turn

    def give_back(self, part: Part, begin: int) -> None:
        """The program did not want the records of `part` from `begin` on: they come next, again."""
        if self.is_current(part) and part.outcome.next_offset != begin:
            self._states[part.partition].position = begin
            self._count(part.body)
            self._ready.appendleft(replace(part, begin=begin))

    def done(self) -> None:
        """The program has worked on all that it was given."""
        for state in self._states.values():
            state.done = state.position

    def commits(self, *, only_done: bool) -> Mapping[TopicPartition, int]:
        """The offsets to commit: of the records that were given out, or only of those that are done."""
        places = ((one, state.done if only_done else state.position) for one, state in self._states.items())
        return {one: place for one, place in places if place is not None}

    def _refused(self, planned: PlannedPart, state: _State, error: TidelogError, now: float) -> None:
        if isinstance(error, RecordsLost):
            state.at = error.next_offset
            self._put(Part(planned.partition, planned.turn, PartOutcome(error.next_offset), NO_BODY, error))
        elif isinstance(error, OutOfRange) and self.reset_to is not None:
            state.at = self.reset_to
        elif isinstance(error, Overloaded | NotLeader):
            state.retry_at = now + max(RETRY_S, error.retry_after_s)
        elif isinstance(error, Unavailable | Fenced):
            state.retry_at = now + RETRY_S
        else:
            self._block(planned, state, error)

    def _block(self, planned: PlannedPart, state: _State, error: TidelogError) -> None:
        """Fetch the partition again only after the program has got the error."""
        state.blocked = True
        self._put(Part(planned.partition, planned.turn, PartOutcome(0, error=error), NO_BODY))

    def _put(self, part: Part) -> None:
        self._ready.append(part)
        self._count(part.body)

    def _count(self, body: Body) -> None:
        _, parts = self._bodies.get(id(body), (body, 0))
        if not parts:
            self._buffered_bytes += body.size_bytes
        self._bodies[id(body)] = (body, parts + 1)

    def _release(self, body: Body) -> None:
        _, parts = self._bodies.pop(id(body))
        if parts > 1:
            self._bodies[id(body)] = (body, parts - 1)
        else:
            self._buffered_bytes -= body.size_bytes

    def _begin(self, plan: FetchPlan) -> FetchPlan:
        self._under_way[plan.leader] = self._under_way.get(plan.leader, 0) + 1
        for part in plan.parts:
            self._states[part.partition].fetching = True
        return plan

    def _end(self, plan: FetchPlan) -> None:
        self._under_way[plan.leader] -= 1
        if not self._under_way[plan.leader]:
            del self._under_way[plan.leader]

    def _current(self, planned: PlannedPart) -> _State | None:
        """The partition's state; None if the fetch is of an earlier turn."""
        state = self._states.get(planned.partition)
        return state if state is not None and state.turn == planned.turn else None

    def _begin_turn(self, state: _State) -> None:
        state.turn, state.fetching, state.blocked, state.retry_at = self._next_turn(), False, False, 0.0

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns
