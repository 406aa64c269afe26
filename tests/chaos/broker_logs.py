"""How long shards were without a leader, according to the brokers' own logs. The judge never uses this.

A **handover** lasts from the line in which the old leader releases the shard to the line in which the new one leads. A
**takeover** has no first line: it lasts from the beginning of the fault that hit the old leader, so it includes the
rest of the lease. A release by a broker that is not the last leader is ignored: another broker led the shard by then.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LED = re.compile(r"^shard (\d+) is led here in epoch \d+$")
RELEASED = re.compile(r"^shard (\d+) is released$")
HANDOVER, TAKEOVER = "handover", "takeover from a fault's beginning"


@dataclass(frozen=True, order=True)
class ShardEvent:
    """A line of a broker's log. `at_s`: seconds since 1970."""

    at_s: float
    shard: int
    broker: str
    led: bool


@dataclass(frozen=True)
class Handover:
    """A shard that moved from one process to another. `kind` is `HANDOVER` or `TAKEOVER`."""

    kind: str
    shard: int
    seconds: float


def handovers_in(folder: Path, faults_began_s: Sequence[float]) -> list[Handover]:
    """All handovers in each ``broker-*.log`` in `folder`. `faults_began_s`: seconds since 1970, in order."""
    events = [event for path in folder.glob("broker-*.log") for event in _events(path.stem, _lines(path))]
    by_shard: dict[int, list[ShardEvent]] = defaultdict(list)
    for event in sorted(events):
        by_shard[event.shard].append(event)
    return [found for shard in by_shard.values() for found in _of_shard(shard, faults_began_s)]


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def _events(broker: str, lines: Iterable[str]) -> Iterator[ShardEvent]:
    for line in lines:
        if not line.startswith("{") or '"shard ' not in line:
            continue
        entry = json.loads(line)
        for pattern, led in ((LED, True), (RELEASED, False)):
            if found := pattern.match(entry["message"]):
                yield ShardEvent(datetime.fromisoformat(entry["time"]).timestamp(), int(found[1]), broker, led)


def _of_shard(events: Sequence[ShardEvent], faults_began_s: Sequence[float]) -> Iterator[Handover]:
    before: ShardEvent | None = None
    for event in events:
        if not event.led and before and before.broker != event.broker:
            continue
        if event.led and before:
            if not before.led:
                yield Handover(HANDOVER, event.shard, event.at_s - before.at_s)
            elif blamed := [began for began in faults_began_s if before.at_s < began < event.at_s]:
                yield Handover(TAKEOVER, event.shard, event.at_s - blamed[-1])
        before = event
