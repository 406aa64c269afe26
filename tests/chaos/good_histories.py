"""Hand-made histories that the judge and the oracle must accept."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.checker.history import Acks, Append, FaultWindow, History, Outcome, Place, Run
from tests.chaos.group_histories import GOOD_GROUPS
from tests.chaos.histories import (
    COMPACTED,
    EXPIRING,
    GROWING,
    TOPIC,
    asked_end,
    calm_story,
    held,
    refused,
    seen,
    sent,
    story,
    trimmed,
)

GOOD: dict[str, History] = {
    **GOOD_GROUPS,
    "an append that was refused is all that happened": story(sent("p", 0, at=0, outcome=Outcome.FAIL), held()),
    "two acknowledged": story(sent("p", 0, 2, at=0, base=0), sent("p", 2, 1, at=2, base=2), held(Run(0, "p", 0, 3))),
    "an unknown that was taken, and one that was not": story(
        sent("p", 0, at=0), sent("q", 0, at=0), held(Run(0, "q", 0, 1))
    ),
    "an unknown that came in much later": story(
        sent("p", 0, at=0), sent("q", 0, at=9, base=0), held(Run(0, "q", 0, 1), Run(1, "p", 0, 1))
    ),
    "a retry with the same sequence": story(
        sent("p", 0, 2, at=0, sequenced=True),
        sent("p", 0, 2, at=5, base=0, sequenced=True),
        held(Run(0, "p", 0, 2)),
    ),
    "a refused one that is not there": story(sent("p", 0, at=0, outcome=Outcome.FAIL), held()),
    "appends at the same time, in any order": story(
        sent("p", 0, at=0, took=5, base=1),
        sent("q", 0, at=1, took=5, base=0),
        held(Run(0, "q", 0, 1), Run(1, "p", 0, 1)),
    ),
    "readers who see what there is": story(
        sent("p", 0, 2, at=0, base=0),
        seen("r", 0, Run(0, "p", 0, 2), at=2),
        seen("r", 2, at=4),
        sent("p", 2, at=2.5, base=2, took=3),
        seen("r", 2, Run(2, "p", 2, 1), at=6),
        seen("other", 1, Run(1, "p", 1, 2), at=6),
        held(Run(0, "p", 0, 3)),
    ),
    "rivals of whom one wins": story(
        sent("p", 0, at=0, base=0, expected=0),
        sent("q", 0, at=0, outcome=Outcome.CONFLICT, expected=0, next_offset=1),
        sent("q", 1, at=2, base=1, expected=1),
        held(Run(0, "p", 0, 1), Run(1, "q", 1, 1)),
    ),
    "empty reads and queries that tell the end": story(
        seen("r", 0, at=0),
        sent("p", 0, at=2, base=0),
        asked_end("r", 0, at=1, took=1.5),
        asked_end("r", 1, at=2.5),
        seen("q", 1, at=4),
        held(Run(0, "p", 0, 1)),
    ),
    "an empty read that an append overtakes": story(
        seen("r", 0, at=0, took=9), sent("p", 0, at=2, base=0), held(Run(0, "p", 0, 1))
    ),
    "a first read beyond the end": story(
        sent("p", 0, at=0, base=0), refused("r", 1, at=0, took=0.5), refused("r", 7, at=9), held(Run(0, "p", 0, 1))
    ),
    "a failure within a fault, and one shortly after it": calm_story(
        FaultWindow("broker killed", 10, 20),
        sent("p", 0, at=0, base=0),
        sent("p", 1, at=15, outcome=Outcome.FAIL),
        sent("p", 2, at=21),
        held(Run(0, "p", 0, 1)),
    ),
    "acks=1 loses what a fault finds, and nobody minds": calm_story(
        FaultWindow("broker killed", 10, 20),
        sent("p", 0, at=1, base=0),
        sent("fast", 0, 3, at=8, base=1, acks=Acks.LEADER),
        sent("fast", 3, 3, at=16, acks=Acks.NONE, outcome=Outcome.OK),
        sent("p", 1, at=24, base=1),
        held(Run(0, "p", 0, 2)),
    ),
    "records below the log start are gone": story(
        sent("p", 0, 3, at=0, base=0),
        seen("r", 0, Run(0, "p", 0, 1), at=2),
        trimmed(2, at=4),
        refused("r", 1, at=6),
        seen("r", 2, Run(2, "p", 2, 1), at=8),
        asked_end("q", 3, at=9),
        held(Run(2, "p", 2, 1), log_start=2),
    ),
    "a deletion that was not answered": story(
        sent("p", 0, 2, at=0, base=0), trimmed(1, at=4, outcome=Outcome.UNKNOWN), held(Run(1, "p", 1, 1), log_start=1)
    ),
    "old records expired": story(EXPIRING, sent("p", 0, 2, at=0, base=0), held(Run(1, "p", 1, 1), log_start=1)),
    "old records expired after the final read": story(
        EXPIRING,
        sent("p", 0, 2, at=0, base=0),
        held(Run(0, "p", 0, 2)),
        replace(refused("again", 0, at=9), log_start_offset=1),
        seen("again", 1, Run(1, "p", 1, 1), at=11),
    ),
    "of a key the newest record stays": story(
        COMPACTED,
        sent("p", 0, 3, at=0, base=0, keys=("a", "b", "a")),
        seen("r", 0, Run(0, "p", 0, 3), at=2),
        seen("late", 0, Run(1, "p", 1, 2), at=4, next_offset=3),
        held(Run(1, "p", 1, 2)),
    ),
    "a key moves when partitions are added": story(
        GROWING,
        sent("p", 0, at=0, partition=None, keys=("k",)),
        sent("p", 1, at=2, partition=None, keys=("k",)),
        held(Run(0, "p", 0, 1)),
        held(Run(0, "p", 1, 1), partition=1),
    ),
    "a request that the service spread": story(
        Append(
            "p",
            TOPIC,
            None,
            0,
            4,
            (Place(0, 0, 2), Place(1, 0, 2)),
            ("a", "b", "a", "b"),
            start=0,
            end=1,
            outcome=Outcome.OK,
        ),
        held(Run(0, "p", 0, 1), Run(1, "p", 2, 1)),
        held(Run(0, "p", 1, 1), Run(1, "p", 3, 1), partition=1),
    ),
}
