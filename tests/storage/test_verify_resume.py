"""A verification that is interrupted continues where it was, and reports what an uninterrupted one would."""

from __future__ import annotations

import pytest
from tests.storage.archive_scenes import NEVER, Crash, CrashingStore, Scene, archiver_of, manifest_of, small_scene
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.finding import Finding
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.bucket.verify.verify_state import WalkState, decode_state, encode_state
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


def again(store: ObjectStore, state: WalkState | None = None, *, deep: bool = True) -> BucketVerification:
    """Continue from the file like a new process, with one request at a time."""
    kept = decode_state("file", encode_state(state), store=store.url, deep=deep) if state else None
    return BucketVerification(store, deep=deep, at_once=1, state=kept)


async def findings(verification: BucketVerification) -> list[Finding]:
    return [finding async for finding in verification.findings()]


@pytest.mark.parametrize("deep", [False, True])
async def test_a_walk_may_be_interrupted_before_any_request(deep: bool) -> None:
    store, _ = await archived()
    missing = next(iter((await manifest_of(store)).topics[SHOP.topic_id].segments)).key
    await store.delete(missing)
    whole = CrashingStore(store, NEVER, after=False)
    expected = again(whole, deep=deep)
    (told,) = await findings(expected)
    assert told.key == missing
    for survived in range(whole.calls):
        interrupted = again(CrashingStore(store, survived, after=False), deep=deep)
        with pytest.raises(Crash):
            await findings(interrupted)
        rest = CrashingStore(store, NEVER, after=False)
        going_on = again(rest, interrupted.state, deep=deep)
        assert await findings(going_on) == [told]
        assert (going_on.summary.errors, going_on.summary.sound) == (1, False)
        if interrupted.state.wal_done:
            assert rest.calls < whole.calls


async def test_segments_and_manifests_that_were_looked_at_are_not_read_again() -> None:
    store, _ = await archived()
    reads = []
    for after in ("", sorted((await manifest_of(store)).topics[WEB.topic_id].segments.columns.keys)[-2]):
        counting = CrashingStore(store, NEVER, after=False)
        verification = again(counting)
        verification.state.wal_done = True
        verification.state.shards = {0}
        verification.state.after = after
        assert await findings(verification) == []
        reads.append(counting.calls)
    requests_per_segment = 1
    assert reads[0] - reads[1] == 7 * requests_per_segment


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
        decode_state("f", data.replace(b'"format_version":3', b'"format_version":1'), store="s3://one", deep=False)
