"""A store that fails like object stores do, from a seed.

It draws every fault from the runtime's `Entropy` and waits on its `Clock`, so a seed repeats a run. It uses no task,
lock or future of asyncio, because the deterministic simulation drives these coroutines itself.

A call can have at most one of these faults:

    unavailable   a 5xx before any effect
    contended     a 409: nothing was done (writes only)
    reset         the connection breaks; it is random whether a write took effect
    lost_answer   the write took effect, but its answer is lost
    delayed       the answer is a timeout, and the write takes effect *later*, perhaps after other writes

Independently, a call can be `slow`: it waits up to `slow_s_max` before it begins.

A delayed write takes effect when a call through this wrapper finds it due. Callers of the wrapper cannot tell this from
an earlier effect, because only a call can see the difference. Code that looks at the inner store directly must call
`land_due` first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TypeVar

from tidelog.storage.errors import Contended, TidelogError, Unavailable
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore

T = TypeVar("T")


class Fault(Enum):
    UNAVAILABLE = "unavailable"
    CONTENDED = "contended"
    RESET = "reset"
    LOST_ANSWER = "lost_answer"
    DELAYED = "delayed"


READ_FAULTS = (Fault.UNAVAILABLE, Fault.RESET)
WRITE_FAULTS = tuple(Fault)


@dataclass(frozen=True)
class FaultPlan:
    """The probability of each fault (0 to 1, together at most 1), and the longest waits in seconds."""

    unavailable: float = 0.0
    contended: float = 0.0
    reset: float = 0.0
    lost_answer: float = 0.0
    delayed: float = 0.0
    slow: float = 0.0
    slow_s_max: float = 1.0
    delay_s_max: float = 10.0

    def __post_init__(self) -> None:
        likely = [self.chance(fault) for fault in Fault]
        assert all(getattr(self, field.name) >= 0 for field in fields(self)), self
        assert sum(likely) <= 1 + 1e-9, f"the chances of {self} are more than 1"
        assert self.slow <= 1, self

    def chance(self, fault: Fault) -> float:
        """The probability of `fault`."""
        chance: float = getattr(self, fault.value)
        return chance


@dataclass(frozen=True)
class _Landing:
    """A write that will take effect later."""

    due_s: float
    write: Callable[[], Awaitable[object]]


class FaultyObjectStore(WrappingObjectStore):
    """Adds the faults of `plan` to `inner`. The plan may be replaced at any time: ``store.plan =
    FaultPlan(unavailable=1)`` is an outage."""

    def __init__(self, inner: ObjectStore, plan: FaultPlan, runtime: Runtime) -> None:
        super().__init__(inner)
        self.plan = plan
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._landings: list[_Landing] = []

    @property
    def landings(self) -> int:
        """The number of delayed writes that have not taken effect yet."""
        return len(self._landings)

    async def put(self, key: str, data: Body, *, if_version: str | None = None) -> str:
        # A copy, because the caller may reuse its buffer before a delayed write happens.
        return await super().put(key, bytes(data), if_version=if_version)

    async def create(self, key: str, data: Body) -> str:
        return await super().create(key, bytes(data))

    async def aclose(self) -> None:
        """Let every delayed write take effect, then close the inner store."""
        await self.land_all()
        await self._inner.aclose()

    async def land_due(self) -> None:
        """Apply the delayed writes that are due, in the order of their times."""
        now_s = self._clock.monotonic()
        await self._land([landing for landing in self._landings if landing.due_s <= now_s])

    async def land_all(self) -> None:
        """Apply every delayed write now."""
        await self._land(tuple(self._landings))

    async def _land(self, due: Sequence[_Landing]) -> None:
        self._landings = [landing for landing in self._landings if landing not in due]
        for landing in sorted(due, key=lambda landing: landing.due_s):
            await _without_answer(landing.write)

    async def _send(self, request: Request, attempt: Attempt[T], /) -> T:
        is_write = request.verb in (Verb.PUT, Verb.CREATE, Verb.DELETE)
        fault = await self._begin(WRITE_FAULTS if is_write else READ_FAULTS)
        if fault is None:
            return await attempt()
        what = f"{request.verb.value} {request.key}: injected {fault.value}"
        if fault is Fault.CONTENDED:
            raise Contended(what)
        if is_write:
            await self._lose(fault, attempt)
        raise Unavailable(what)

    async def _lose(self, fault: Fault, write: Attempt[object]) -> None:
        """A write that fails by `fault` takes effect later, now, or never."""
        if fault is Fault.DELAYED:
            due_s = self._clock.monotonic() + self._entropy.uniform(0, self.plan.delay_s_max)
            self._landings.append(_Landing(due_s, write))
        elif fault is Fault.LOST_ANSWER or (fault is Fault.RESET and self._entropy.uniform(0, 1) < 0.5):
            await _without_answer(write)

    async def _begin(self, possible: tuple[Fault, ...]) -> Fault | None:
        """Wait if the call is slow, apply due writes, and draw this call's fault."""
        if self._entropy.uniform(0, 1) < self.plan.slow:
            await self._clock.sleep(self._entropy.uniform(0, self.plan.slow_s_max))
        await self.land_due()
        draw = self._entropy.uniform(0, 1)
        for fault in possible:
            draw -= self.plan.chance(fault)
            if draw < 0:
                return fault
        return None


async def _without_answer(call: Callable[[], Awaitable[object]]) -> None:
    """Make `call` and discard its answer. An error is an answer too, and is also discarded."""
    try:
        await call()
    except TidelogError:
        return
