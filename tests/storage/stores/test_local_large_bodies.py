"""A large body is written to the disk in steps, so that small bodies need not wait for all of it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tidelog.storage.stores.local import COMMIT_BYTES_MAX, FILE_THREADS, SYNC_STEP_BYTES, LocalObjectStore


@pytest.mark.parametrize(
    ("size_bytes", "steps"),
    [(0, 1), (COMMIT_BYTES_MAX, 1), (COMMIT_BYTES_MAX + 5, COMMIT_BYTES_MAX // SYNC_STEP_BYTES + 1)],
)
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
    assert written == [*range(SYNC_STEP_BYTES, SYNC_STEP_BYTES * steps, SYNC_STEP_BYTES), size_bytes]
    assert len(written) == steps
    await store.aclose()


async def test_a_commit_does_not_wait_behind_large_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, disk_answers, syncs = LocalObjectStore(tmp_path), threading.Event(), threading.Semaphore(0)
    fsync = os.fsync

    def slow_for_large_files(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > COMMIT_BYTES_MAX // 2:
            syncs.release()
            assert disk_answers.wait(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_for_large_files)
    segment = bytes(COMMIT_BYTES_MAX + 1)
    large = [asyncio.create_task(store.create(f"topics/{number}", segment)) for number in range(FILE_THREADS + 1)]
    for _ in range(FILE_THREADS):
        assert await asyncio.to_thread(syncs.acquire, timeout=30)
    async with asyncio.timeout(30):
        await store.create("wal/0", b"entry")
    disk_answers.set()
    await asyncio.gather(*large)
    await store.aclose()
