"""Hand-made histories that each break one rule. Every rule has at least one."""

from __future__ import annotations

from tests.chaos.checker.history import Acks, Append, EndQuery, FaultWindow, History, Outcome, Place, Read, Run
from tests.chaos.checker.violation import Rule
from tests.chaos.group_histories import BAD_GROUPS
from tests.chaos.histories import (
    COMPACTED,
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

BAD: dict[str, tuple[Rule, History]] = {
    **BAD_GROUPS,
    "nothing was recorded": (Rule.NOTHING_RECORDED, calm_story()),
    "only a final read was recorded": (Rule.NOTHING_RECORDED, story(held())),
    "nobody read at the end": (Rule.NOTHING_RECORDED, story(sent("p", 0, at=0))),
    "an empty read long after an acknowledged append": (
        Rule.END_ANSWER,
        story(sent("p", 0, at=0, base=0), seen("r", 0, at=60), held(Run(0, "p", 0, 1))),
    ),
    "an empty read of what another reader saw": (
        Rule.END_ANSWER,
        story(sent("p", 0, at=0), seen("r", 0, Run(0, "p", 0, 1), at=2), seen("q", 0, at=4), held(Run(0, "p", 0, 1))),
    ),
    "an older end than was acknowledged": (
        Rule.END_ANSWER,
        story(sent("p", 0, at=0, base=0), asked_end("r", 0, at=60), held(Run(0, "p", 0, 1))),
    ),
    "an end that had not come": (
        Rule.END_ANSWER,
        story(asked_end("r", 1, at=0), sent("p", 0, at=5, base=0), held(Run(0, "p", 0, 1))),
    ),
    "an end within an append": (
        Rule.END_ANSWER,
        story(sent("p", 0, 2, at=0, base=0), asked_end("r", 1, at=0), held(Run(0, "p", 0, 2))),
    ),
    "ends that fall": (
        Rule.END_ANSWER,
        story(sent("p", 0, at=0), asked_end("r", 1, at=2), asked_end("r", 0, at=4), held(Run(0, "p", 0, 1))),
    ),
    "a session's first read of an acknowledged offset is out of range": (
        Rule.CUT_OFF,
        story(sent("p", 0, at=0, base=0), refused("r", 0, at=60), held(Run(0, "p", 0, 1))),
    ),
    "a session's first read at the acknowledged end is out of range": (
        Rule.CUT_OFF,
        story(sent("p", 0, at=0, base=0), refused("r", 1, at=60), held(Run(0, "p", 0, 1))),
    ),
    "a gap in a sequence": (
        Rule.SEQUENCE_GAP,
        story(
            sent("p", 0, 2, at=0, sequenced=True),
            sent("p", 2, 2, at=5, base=0, sequenced=True),
            held(Run(0, "p", 2, 2)),
        ),
    ),
    "a refusal in calm weather": (
        Rule.UNEXCUSED,
        calm_story(sent("p", 0, at=0, base=0), sent("p", 1, at=60, outcome=Outcome.FAIL), held(Run(0, "p", 0, 1))),
    ),
    "a failed read before the fault": (
        Rule.UNEXCUSED,
        calm_story(
            FaultWindow("broker killed", 10, 20),
            sent("p", 0, at=0, base=0),
            Read("r", TOPIC, 0, 0, 0, start=5, end=6, outcome=Outcome.UNKNOWN, code="unavailable"),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "a failed query long after the fault": (
        Rule.UNEXCUSED,
        calm_story(
            FaultWindow("broker killed", 10, 20),
            sent("p", 0, at=0, base=0),
            EndQuery("r", TOPIC, 0, None, start=60, end=61, outcome=Outcome.UNKNOWN, code="not_leader"),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "acks=1 loses a record that no fault was near": (
        Rule.ACKS_1_LOSS,
        calm_story(FaultWindow("broker killed", 100, 120), sent("fast", 0, at=50, base=0, acks=Acks.LEADER), held()),
    ),
    "a fault loses many seconds of acks=1": (
        Rule.ACKS_1_LOSS,
        calm_story(
            FaultWindow("store unreachable", 10, 40),
            *(sent("fast", n, at=12 + 2 * n, acks=Acks.LEADER, outcome=Outcome.OK) for n in range(10)),
            held(),
        ),
    ),
    "a log start that nobody asked for": (
        Rule.LOG_START,
        story(sent("p", 0, 3, at=0, base=0), trimmed(1, at=4), held(Run(2, "p", 2, 1), log_start=2)),
    ),
    "a deleted record is read": (
        Rule.UNDELETED,
        story(
            sent("p", 0, 2, at=0, base=0),
            trimmed(1, at=4),
            seen("r", 0, Run(0, "p", 0, 2), at=9),
            held(Run(1, "p", 1, 1), log_start=1),
        ),
    ),
    "a record above the log start is gone": (
        Rule.LOST,
        story(sent("p", 0, 3, at=0, base=0), trimmed(1, at=4), held(Run(1, "p", 1, 1), log_start=1)),
    ),
    "compaction takes the newest record of a key": (
        Rule.LOST,
        story(COMPACTED, sent("p", 0, 3, at=0, base=0, keys=("a", "b", "a")), held(Run(0, "p", 0, 2))),
    ),
    "a reader of a compacted topic skips a record that is there": (
        Rule.SKIPPED,
        story(
            COMPACTED,
            sent("p", 0, 3, at=0, base=0, keys=("a", "b", "a")),
            seen("r", 0, Run(2, "p", 2, 1), at=2, next_offset=3),
            held(Run(1, "p", 1, 2)),
        ),
    ),
    "two readers saw different records where one was deleted": (
        Rule.DISAGREEMENT,
        story(
            sent("p", 0, 2, at=0),
            sent("q", 0, at=0),
            seen("r", 0, Run(0, "p", 0, 1), at=2),
            seen("s", 0, Run(0, "q", 0, 1), at=2),
            trimmed(1, at=4),
            held(Run(1, "p", 1, 1), log_start=1),
        ),
    ),
    "an acknowledged record is gone": (
        Rule.LOST,
        story(sent("p", 0, at=0, base=0), sent("p", 1, at=2, base=1), held(Run(0, "p", 0, 1))),
    ),
    "the end of an acknowledged batch is gone": (
        Rule.LOST,
        story(sent("p", 0, 3, at=0, base=0), held(Run(0, "p", 0, 2))),
    ),
    "a retry was appended again": (
        Rule.DUPLICATED,
        story(
            sent("p", 0, at=0, sequenced=True),
            sent("p", 0, at=5, base=0, sequenced=True),
            held(Run(0, "p", 0, 1), Run(1, "p", 0, 1)),
        ),
    ),
    "an unacknowledged record is there twice": (
        Rule.DUPLICATED,
        story(sent("p", 0, at=0), held(Run(0, "p", 0, 1), Run(1, "p", 0, 1))),
    ),
    "an acknowledged record is elsewhere": (
        Rule.MISPLACED,
        story(sent("p", 0, at=0, base=0), sent("q", 0, at=0), held(Run(0, "q", 0, 1), Run(1, "p", 0, 1))),
    ),
    "an answer that counts otherwise": (
        Rule.MISPLACED,
        story(
            Append("p", TOPIC, 0, 0, 2, (Place(0, 0, 3),), start=0, end=1, outcome=Outcome.OK),
            sent("q", 0, at=0),
            held(Run(0, "p", 0, 2), Run(2, "q", 0, 1)),
        ),
    ),
    "a hole": (
        Rule.NOT_DENSE,
        story(sent("p", 0, at=0, base=0), sent("p", 1, at=2), held(Run(0, "p", 0, 1), Run(2, "p", 1, 1))),
    ),
    "a log that begins late": (Rule.LOG_START, story(sent("p", 0, at=0), held(log_start=5))),
    "a record from nowhere": (
        Rule.INVENTED,
        story(sent("p", 0, at=0, base=0), held(Run(0, "p", 0, 1), Run(1, "x", 0, 1))),
    ),
    "a record of another partition": (Rule.INVENTED, story(sent("p", 0, at=0), held(Run(0, "p", 0, 1), partition=1))),
    "a refused record is there": (
        Rule.REFUSED_YET_TAKEN,
        story(sent("p", 0, at=0, outcome=Outcome.FAIL), held(Run(0, "p", 0, 1))),
    ),
    "half of an unacknowledged batch": (Rule.TORN, story(sent("p", 0, 4, at=0), held(Run(0, "p", 0, 2)))),
    "another's record within a batch": (
        Rule.TORN,
        story(sent("p", 0, 2, at=0), sent("q", 0, at=0), held(Run(0, "p", 0, 1), Run(1, "q", 0, 1), Run(2, "p", 1, 1))),
    ),
    "a batch turned round": (
        Rule.REORDERED,
        story(sent("p", 0, 2, at=0, base=0), held(Run(0, "p", 1, 1), Run(1, "p", 0, 1))),
    ),
    "a producer's sequence turned round": (
        Rule.REORDERED,
        story(
            sent("p", 0, at=0, sequenced=True),
            sent("p", 1, at=2, base=0, sequenced=True),
            held(Run(0, "p", 1, 1), Run(1, "p", 0, 1)),
        ),
    ),
    "a key in two partitions": (
        Rule.KEY_MOVED,
        story(
            sent("p", 0, at=0, partition=None, keys=("k",)),
            sent("p", 1, at=2, partition=None, keys=("k",)),
            held(Run(0, "p", 0, 1)),
            held(Run(0, "p", 1, 1), partition=1),
        ),
    ),
    "a reader saw another record": (
        Rule.DISAGREEMENT,
        story(sent("p", 0, at=0), sent("q", 0, at=0), seen("r", 0, Run(0, "q", 0, 1), at=0), held(Run(0, "p", 0, 1))),
    ),
    "a reader saw what was not kept": (
        Rule.DISAGREEMENT,
        story(sent("p", 0, at=0), seen("r", 0, Run(0, "p", 0, 1), at=2), held()),
    ),
    "a reader is given a record again": (
        Rule.WENT_BACK,
        story(
            sent("p", 0, at=0),
            seen("r", 0, Run(0, "p", 0, 1), at=2),
            seen("r", 1, Run(0, "p", 0, 1), at=4, next_offset=1),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "a reader is sent back": (
        Rule.WENT_BACK,
        story(sent("p", 0, at=0), seen("r", 0, Run(0, "p", 0, 1), at=2, next_offset=0), held(Run(0, "p", 0, 1))),
    ),
    "a reader is given the record after the next": (
        Rule.SKIPPED,
        story(sent("p", 0, 2, at=0), seen("r", 0, Run(1, "p", 1, 1), at=2, next_offset=2), held(Run(0, "p", 0, 2))),
    ),
    "a reader is sent beyond what it was given": (
        Rule.SKIPPED,
        story(sent("p", 0, 2, at=0), seen("r", 0, Run(0, "p", 0, 1), at=2, next_offset=2), held(Run(0, "p", 0, 2))),
    ),
    "a reader's place is out of range": (
        Rule.CUT_OFF,
        story(
            sent("p", 0, at=0),
            seen("r", 0, Run(0, "p", 0, 1), at=2),
            refused("r", 1, at=4),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "a later append got the lower offset": (
        Rule.APPEND_ORDER,
        story(sent("p", 0, at=0, base=1), sent("q", 0, at=5, base=0), held(Run(0, "q", 0, 1), Run(1, "p", 0, 1))),
    ),
    "a record that was seen has one behind it that was sent later, before it": (
        Rule.APPEND_ORDER,
        story(
            sent("p", 0, at=0),
            sent("q", 0, at=9),
            seen("r", 1, Run(1, "p", 0, 1), at=2),
            held(Run(0, "q", 0, 1), Run(1, "p", 0, 1)),
        ),
    ),
    "a condition that did not hold": (
        Rule.EXPECTED_OFFSET,
        story(
            sent("p", 0, at=0, base=0, expected=0),
            sent("q", 0, at=0, base=1, expected=0),
            held(Run(0, "p", 0, 1), Run(1, "q", 0, 1)),
        ),
    ),
    "a conflict over nothing": (
        Rule.CONFLICT_ANSWER,
        story(sent("p", 0, at=0, outcome=Outcome.CONFLICT, expected=0, next_offset=0), held()),
    ),
    "a conflict by an old state": (
        Rule.CONFLICT_ANSWER,
        story(
            sent("p", 0, at=0, base=0),
            sent("q", 0, at=5, outcome=Outcome.CONFLICT, expected=1, next_offset=0),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "a conflict by a state that had not come": (
        Rule.CONFLICT_ANSWER,
        story(
            sent("q", 0, at=0, outcome=Outcome.CONFLICT, expected=0, next_offset=1),
            sent("p", 0, at=5, base=0),
            held(Run(0, "p", 0, 1)),
        ),
    ),
    "a conflict by a state that never was": (
        Rule.CONFLICT_ANSWER,
        story(
            sent("q", 0, at=0, outcome=Outcome.CONFLICT, expected=0, next_offset=1),
            sent("p", 0, 2, at=0, base=0),
            held(Run(0, "p", 0, 2)),
        ),
    ),
}
