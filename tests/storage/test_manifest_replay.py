"""A replay accepts any history that workers append, and rejects any step that they cannot make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.storage.shard_histories import SHARD, TOPIC_ID, TopicHistory

from tidelog.storage.bucket.manifest_replay import Chain, TopicReplay
from tidelog.storage.manifests.shard_chain import Recorded, Step, TopicStep, head_after
from tidelog.storage.manifests.shard_manifest import step_of
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.wal.floor import Floor

ARCHIVE, COMPACT, EXPIRE, MERGE = ChangeKind.ARCHIVE, ChangeKind.COMPACT, ChangeKind.EXPIRE, ChangeKind.MERGE
THERE, OTHER = "aa" * 32, "bb" * 32


@pytest.mark.parametrize("seed", range(5))
def test_any_history_is_taken_and_ends_at_its_newest_version(seed: int) -> None:
    history, steps = TopicHistory(Random(seed)), list[Step]()
    for _ in range(50):
        before = history.manifest
        history.step()
        steps.append(step_of(history.manifest))
    chain, replay = Chain(SHARD, {step.version: step.head for step in steps}), TopicReplay()
    for step in steps:
        assert chain.take(step) is None
        assert replay.take(step.version, step.recorded.kind, step.recorded.topics[TOPIC_ID]) is None
    assert (chain.version, chain.head, chain.end_fault()) == (49, history.manifest.head, None)
    assert replay.end_fault(history.manifest.topics[TOPIC_ID]) is None
    assert "segments of its history" in str(replay.end_fault(before.topics[TOPIC_ID]))


# ---- the steps of a topic


def replay_of(steps: Sequence[tuple[ChangeKind, TopicStep]]) -> str | None:
    """The fault of the last of `steps`, which follow a pass that added `THERE`, with offsets 0 to 9 of partition 3."""
    replay, began = TopicReplay(), (ARCHIVE, TopicStep(added=(THERE,), offsets=((3, 0, 10, 0),)))
    faults = [replay.take(version, kind, step) for version, (kind, step) in enumerate([began, *steps])]
    assert not any(faults[:-1])
    return faults[-1]


@pytest.mark.parametrize(
    ("kind", "step", "fault"),
    [
        (MERGE, TopicStep(removed=(OTHER,), added=(THERE,)), "removed a segment that was not there"),
        (COMPACT, TopicStep(removed=(THERE, THERE)), "removed a segment that was not there"),
        (ARCHIVE, TopicStep(removed=(THERE,)), "removed segments, which archive does not do"),
        (EXPIRE, TopicStep(added=(OTHER,)), "added segments, which expire does not do"),
        (EXPIRE, TopicStep(offsets=((3, 0, 9, 0),)), "moved the log start or the cold end of partition 3 back"),
        (MERGE, TopicStep(offsets=((3, 5, 10, 0),)), "moved the log start of partition 3, which merge does not do"),
        (COMPACT, TopicStep(offsets=((3, 0, 11, 0),)), "moved the cold end of partition 3, which compact does not do"),
    ],
)
def test_a_step_that_its_kind_cannot_make_is_reported(kind: ChangeKind, step: TopicStep, fault: str) -> None:
    assert replay_of([(kind, step)]) == f"version 1 {fault}"


def test_a_log_start_does_not_move_back() -> None:
    onward, back = (TopicStep(offsets=((3, start, 10, 0),)) for start in (6, 5))
    assert "back" in str(replay_of([(EXPIRE, onward), (EXPIRE, back)]))


def test_a_topic_that_left_has_no_segments() -> None:
    replay = TopicReplay()
    replay.take(0, ARCHIVE, TopicStep(added=(THERE,), offsets=((0, 0, 10, 0),)))
    assert "lacks 1 segments" in str(replay.end_fault(None))
    assert replay.take(1, ChangeKind.DELETE_TOPIC, TopicStep(removed=(THERE,))) is None
    assert (replay.left_at, replay.end_fault(None)) == (1, None)


# ---- the chain


def a_chain(versions: int = 3, earlier: dict[int, str] | None = None) -> tuple[Chain, Step]:
    """The chain after some versions, and the last one."""
    chain, last = Chain(SHARD, earlier), None
    for version in range(versions):
        step = Step(version, Floor(version + 1), Recorded(ChangeKind.SWEEP), "")
        last = replace(step, head=head_after(chain.head, SHARD, step))
        assert chain.take(last) is None
    assert last is not None
    return chain, last


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_step_out_of_turn_is_reported(shift: int) -> None:
    chain, last = a_chain()
    step = replace(last, version=3 + shift)
    step = replace(step, head=head_after(last.head, SHARD, step))
    assert chain.take(step) == f"has version {3 + shift} after version 2"


def test_a_head_that_is_no_hash_of_its_step_is_reported() -> None:
    chain, last = a_chain()
    assert "does not hash to its head" in str(chain.take(replace(last, version=3)))


def test_a_past_that_was_rewritten_or_cut_is_reported() -> None:
    _, honest = a_chain(5)
    chain, last = a_chain(3, {3: "ab" * 32, 4: honest.head})
    assert chain.end_fault() == "ends at version 2, before version 4, which existed"
    step = replace(last, version=3)
    step = replace(step, head=head_after(last.head, SHARD, step))
    assert "the past was rewritten" in str(chain.take(step))
