"""A verification that was interrupted continues where it stopped, reports its earlier findings, and checks nothing
twice."""

from __future__ import annotations

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, Scene, archiver_of, manifest_of, small_scene
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.verify import BucketVerification
from tidelog.storage.bucket.verify_state import WalkState, decode_state, encode_state
from tidelog.storage.errors import Corrupt, Invalid
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore


async def archived() -> tuple[MemoryObjectStore, Scene]:
    store = MemoryObjectStore()
    scene = await small_scene(store)
    for seed in range(4):
        await scene.append({WEB: 2, SHOP: 1, WEB_1: 1}, epoch=2)
        await archiver_of(scene, store, seed=seed).run_once()
    await scene.append({WEB: 1}, epoch=2)
    return store, scene


def again(store: ObjectStore, state: WalkState | None = None) -> BucketVerification:
    """Continue from the file like a new process, with one request at a time."""
    kept = decode_state("file", encode_state(state), store=store.url, deep=False) if state else None
    return BucketVerification(store, at_once=1, state=kept)


async def findings(verification: BucketVerification) -> list[Finding]:
    return [finding async for finding in verification.findings()]


async def test_a_walk_may_be_interrupted_before_any_request() -> None:
    store, _ = await archived()
    missing = (await manifest_of(store, SHOP)).segments[0].key
    await store.delete(missing)
    whole = CrashingStore(store, NEVER, after=False)
    expected = again(whole)
    (told,) = await findings(expected)
    assert told.key == missing
    for survived in range(whole.calls):
        interrupted = again(CrashingStore(store, survived, after=False))
        with pytest.raises(Crash):
            await findings(interrupted)
        rest = CrashingStore(store, NEVER, after=False)
        going_on = again(rest, interrupted.state)
        assert await findings(going_on) == [told]
        assert going_on.summary.errors == 1
        assert going_on.summary.sound is False
        if interrupted.state.wal_done:
            assert rest.calls < whole.calls


async def test_segments_that_were_looked_at_are_not_read_again() -> None:
    store, _ = await archived()
    whole = again(store)
    await findings(whole)
    reads = CrashingStore(store, NEVER, after=False)
    partly = again(store)
    partly.state.wal_done = True
    segments = (await manifest_of(store, WEB)).segments
    partly.state.reached[f"topics/web/{WEB.topic_id}/0"] = segments[-1].base_offset
    resumed = again(reads, partly.state)
    assert await findings(resumed) == []
    whole_reads = CrashingStore(store, NEVER, after=False)
    fresh = again(whole_reads)
    fresh.state.wal_done = True
    await findings(fresh)
    assert whole_reads.calls - reads.calls == len(segments) - 1


def test_a_file_of_another_bucket_or_kind_of_walk_is_refused() -> None:
    data = encode_state(WalkState("s3://one", deep=False))
    assert decode_state("f", data, store="s3://one", deep=False) == WalkState("s3://one", deep=False)
    with pytest.raises(Invalid, match="shallow"):
        decode_state("f", data, store="s3://one", deep=True)
    with pytest.raises(Invalid, match="s3://one"):
        decode_state("f", data, store="s3://two", deep=False)
    with pytest.raises(Corrupt, match="delete it"):
        decode_state("f", b"{", store="s3://one", deep=False)
    with pytest.raises(Corrupt, match="format version"):
        decode_state("f", data.replace(b'"format_version":1', b'"format_version":2'), store="s3://one", deep=False)
