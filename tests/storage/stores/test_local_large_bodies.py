"""A large body is written to the disk in steps, so that small bodies need not wait for all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.storage.stores.local import SYNC_STEP_BYTES, LocalObjectStore


@pytest.mark.parametrize(("size_bytes", "steps"), [(0, 1), (SYNC_STEP_BYTES, 1), (2 * SYNC_STEP_BYTES + 5, 3)])
async def test_a_body_is_synced_in_steps_and_read_back_whole(
    size_bytes: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = os.urandom(size_bytes)
    written: list[int] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        if os.fstat(descriptor).st_mode & 0o100000:  # a file, not a folder
            written.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    store = LocalObjectStore(tmp_path)
    monkeypatch.setattr(os, "fsync", watched)
    await store.put("a/large", memoryview(body))
    assert (await store.get("a/large")).data == body
    assert written == [*range(SYNC_STEP_BYTES, size_bytes, SYNC_STEP_BYTES), size_bytes]
    assert len(written) == steps
    await store.aclose()
