"""Checks a store: whether it can be reached, allows every kind of request, and makes conditional creates conditional.

The checks write objects of a few bytes under ``_staging/doctor/`` and delete them again, also after a failure or
Ctrl-C. A broker may use the bucket at the same time: no broker reads there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tidelog.services.cli.doctor.check import Check, failed, in_time, ok, warning
from tidelog.storage.errors import Conflict, NotFound, TidelogError
from tidelog.storage.layout import staging_prefix
from tidelog.storage.object_store import ByteRange, ObjectStore
from tidelog.storage.runtime import Runtime

JOB = "doctor"
RACERS = 8
SKEW_WARNING_MS = 5_000
SKEW_FAILED_MS = 300_000
"""S3 refuses requests from a clock that is off by 15 minutes."""
_TIME_STEP_MS = 1_000
"""S3 reports the time of an object in whole seconds."""
_OTHER_STORE = "do not run Tidelog on this store: two brokers would overwrite each other's records (docs/stores.md)"
_PERMISSIONS = "give the credentials the permissions that docs/stores.md lists"


@dataclass
class _Probe:
    """A store, and the keys that were written to it."""

    store: ObjectStore
    runtime: Runtime
    prefix: str
    keys: list[str] = field(default_factory=list)

    def key(self, name: str) -> str:
        """A key that is deleted in the end."""
        key = self.prefix + name
        self.keys.append(key)
        return key


async def check_store(store: ObjectStore, runtime: Runtime) -> Sequence[Check]:
    """All checks of `store`, up to the first that makes the others impossible."""
    checks: list[Check] = []
    async with _probing(store, runtime, checks) as probe:
        for name, check in _CHECKS:
            found = await in_time(name, check(probe), _PERMISSIONS)
            checks += found
            if name in _NEEDED and any(one.status == "failed" for one in found):
                break
    return checks


@asynccontextmanager
async def _probing(store: ObjectStore, runtime: Runtime, checks: list[Check]) -> AsyncIterator[_Probe]:
    probe = _Probe(store, runtime, f"{staging_prefix(JOB)}{runtime.entropy.new_id()}-")
    try:
        yield probe
    finally:
        checks += await in_time("delete", _delete(probe), _PERMISSIONS)


async def _reachable(probe: _Probe) -> Sequence[Check]:
    clock = probe.runtime.clock
    began_s = clock.monotonic()
    await probe.store.list("", limit=1)
    return [ok("store", f"{probe.store.url} answers, in {(clock.monotonic() - began_s) * 1_000:.0f} ms")]


async def _create(probe: _Probe) -> Sequence[Check]:
    key = probe.key("created")
    before_ms = probe.runtime.clock.now_ms()
    await probe.store.create(key, b"first")
    after_ms = probe.runtime.clock.now_ms()
    modified_ms = (await probe.store.head(key)).modified_ms
    return [ok("create", "objects can be written"), _clock_check(before_ms, after_ms, modified_ms)]


def _clock_check(before_ms: int, after_ms: int, stored_ms: int) -> Check:
    """Compares the store's time of a write with the times here before and after it."""
    ahead_ms, behind_ms = stored_ms - after_ms, before_ms - (stored_ms + _TIME_STEP_MS)
    skew_ms = max(ahead_ms, behind_ms, 0)
    if skew_ms <= SKEW_WARNING_MS:
        return ok("clock and store", "they agree, to the precision of the store")
    found = f"this machine's clock is {skew_ms / 1_000:,.0f} s {'behind' if ahead_ms > 0 else 'ahead of'} the store's"
    advice = "set the clock by NTP: records get their times from it, and S3 refuses requests with a wrong time"
    check = failed if skew_ms > SKEW_FAILED_MS else warning
    return check("clock and store", found, advice)


async def _conditional(probe: _Probe) -> Sequence[Check]:
    key = probe.key("conditional")
    await probe.store.create(key, b"first")
    with suppress(Conflict):
        await probe.store.create(key, b"second")
        return [failed("conditional create", "a second create of the same object succeeded", _OTHER_STORE)]
    if (await probe.store.get(key)).data != b"first":
        return [failed("conditional create", "a refused create replaced the object", _OTHER_STORE)]
    winners = await _race(probe)
    if winners != 1:
        return [failed("conditional create", f"{winners} of {RACERS} racing creates succeeded", _OTHER_STORE)]
    return [ok("conditional create", f"a second create is refused, and one of {RACERS} racing creates wins")]


async def _race(probe: _Probe) -> int:
    """How many of several creates of one object succeed at the same time. 0 if the object is not that of the winner.
    Raises the first error that is not `Conflict`."""
    key = probe.key("raced")
    answers = await asyncio.gather(*(probe.store.create(key, b"%d" % n) for n in range(RACERS)), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
            raise answer
    winners = [b"%d" % n for n, answer in enumerate(answers) if isinstance(answer, str)]
    if len(winners) == 1 and (await probe.store.get(key)).data not in winners:
        return 0
    return len(winners)


async def _replace(probe: _Probe) -> Sequence[Check]:
    key = probe.key("replaced")
    version = await probe.store.put(key, b"first")
    newer = await probe.store.put(key, b"second", if_version=version)
    with suppress(Conflict):
        await probe.store.put(key, b"third", if_version=version)
        return [failed("conditional replace", "a replacement of an older version succeeded", _OTHER_STORE)]
    await probe.store.put(key, b"fourth", if_version=newer)
    return [ok("conditional replace", "only the newest version is replaced")]


async def _read(probe: _Probe) -> Sequence[Check]:
    key = probe.key("read")
    await probe.store.create(key, b"0123456789")
    if (await probe.store.get(key)).data != b"0123456789":
        return [failed("read", "the bytes that come back are not those that were written", _OTHER_STORE)]
    if (await probe.store.get(key, ByteRange(2, 3))).data != b"234":
        return [failed("read", "a range of an object comes back wrong", _OTHER_STORE)]
    listed = [info.key for info in await probe.store.list(probe.prefix)]
    if key not in listed:
        return [failed("list", "a new object is missing from the list", _OTHER_STORE)]
    return [ok("read", "whole objects and ranges"), ok("list", "a new object is listed at once")]


async def _delete(probe: _Probe) -> Sequence[Check]:
    """Also the answer of a create that failed may be wrong, so every key is deleted."""
    left: list[str] = []
    why = ""
    for key in probe.keys:
        try:
            await probe.store.delete(key)
            await probe.store.head(key)
            left.append(key)
        except NotFound:
            continue
        except TidelogError as error:
            left.append(key)
            why = f" ({error})"
    if left:
        advice = "allow deletion; a sweep removes the objects after a day" if why else _OTHER_STORE
        return [failed("delete", f"{len(left)} objects under {probe.prefix} are still there{why}", advice)]
    return [ok("delete", "objects can be deleted")] if probe.keys else []


_CHECKS: tuple[tuple[str, Callable[[_Probe], Awaitable[Sequence[Check]]]], ...] = (
    ("store", _reachable),
    ("create", _create),
    ("conditional create", _conditional),
    ("conditional replace", _replace),
    ("read", _read),
)
_NEEDED = ("store", "create")
