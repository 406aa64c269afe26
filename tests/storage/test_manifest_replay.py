"""A replay accepts any history that workers append, and rejects any step that they cannot make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.storage.manifest_histories import history_of
from tests.storage.record_tables import WEB

from tidelog.storage.bucket.manifest_replay import Replay
from tidelog.storage.manifests.manifest import Change, ChangeKind
from tidelog.storage.manifests.manifest_chain import Step, head_after, step_of
from tidelog.storage.stores.memory import MemoryObjectStore


@pytest.mark.parametrize("seed", range(5))
async def test_any_history_is_taken_and_ends_at_its_newest_version(seed: int) -> None:
    history = history_of(MemoryObjectStore(), seed)
    newest = await history.run(50)
    replay = Replay(WEB, {manifest.version: manifest.head for manifest in history.versions})
    assert [fault for manifest in history.versions if (fault := replay.take(step_of(manifest)))] == []
    assert replay.end_fault(newest) is None
    assert "does not follow from its history" in str(replay.end_fault(history.versions[-2]))


async def replay_of(versions: int) -> tuple[Replay, Step]:
    """The replay after some versions of archiving, and the last version."""
    history = history_of(MemoryObjectStore())
    await history.run(versions, [ChangeKind.ARCHIVE])
    replay = Replay(WEB)
    for manifest in history.versions:
        assert replay.take(step_of(manifest)) is None
    return replay, step_of(history.versions[-1])


def after(step: Step, kind: ChangeKind, *, removed: tuple[str, ...] = (), added: tuple[str, ...] = ()) -> Step:
    """A step after `step`; `hashed` sets its head."""
    return replace(step, version=step.version + 1, change=Change(kind, removed, added))


def hashed(step: Step, before: Step) -> Step:
    return replace(step, head=head_after(before.head, WEB, step))


async def test_a_segment_that_was_not_there_cannot_leave() -> None:
    replay, last = await replay_of(3)
    step = hashed(after(last, ChangeKind.MERGE, removed=("ab" * 32,), added=("cd" * 32,)), last)
    assert replay.take(step) == "version 3 removed a segment that was not there"


async def test_a_segment_that_is_there_once_cannot_leave_twice() -> None:
    replay, last = await replay_of(3)
    [there] = last.change.added
    step = hashed(after(last, ChangeKind.COMPACT, removed=(there, there)), last)
    assert replay.take(step) == "version 3 removed a segment that was not there"


@pytest.mark.parametrize("name", ["log_start_offset", "cold_end"])
async def test_neither_end_moves_back(name: str) -> None:
    replay, last = await replay_of(3)
    onward = hashed(replace(after(last, ChangeKind.EXPIRE), log_start_offset=500), last)
    assert replay.take(onward) is None
    back = replace(after(onward, ChangeKind.EXPIRE), **{name: getattr(onward, name) - 1})
    assert replay.take(hashed(back, onward)) == "version 4 moved the log start or the cold end back"


@pytest.mark.parametrize("shift", [-1, 1])
async def test_a_step_out_of_turn_is_reported(shift: int) -> None:
    replay, last = await replay_of(3)
    step = replace(after(last, ChangeKind.COLLECT), version=3 + shift)
    assert replay.take(hashed(step, last)) == f"version {3 + shift} follows version 2"


async def test_a_head_that_is_no_hash_of_its_step_is_reported() -> None:
    replay, last = await replay_of(3)
    assert "does not hash to its head" in str(replay.take(after(last, ChangeKind.COLLECT)))
