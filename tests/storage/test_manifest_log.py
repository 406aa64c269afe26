"""Manifests are encoded and decoded, and appended to their log: an appender succeeds or starts over."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.archive_scenes import lost_answer
from tests.storage.manifest_histories import decode_manifest
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.errors import Conflict, Corrupt, Invalid, Unavailable
from tidelog.storage.manifests.manifest import ChangeKind, Manifest, Segment
from tidelog.storage.manifests.manifest_chain import grown
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.wal_entry import ProducerMark

KEY = "topics/web/" + WEB.topic_id + "/_manifest/00000/00000000000000000000.json"


def a_segment(base_offset: int, last_offset: int, name: str = "ab") -> Segment:
    key = f"topics/web/{WEB.topic_id}/partition=0/{base_offset:020d}-{last_offset:020d}-{name}.parquet"
    return Segment(key, base_offset, last_offset, last_offset - base_offset + 1, 1_000, 5, 9, "00" * 32)


def a_manifest(*bounds: tuple[int, int], version: int = 0, name: str = "ab") -> Manifest:
    segments = tuple(a_segment(base, last, name) for base, last in bounds)
    return Manifest(WEB, version, 0, segments[-1].next_offset if segments else 0, segments)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    edges = sorted(draw(st.sets(st.integers(0, 2**60), max_size=12)))
    bounds = list(zip(edges[::2], edges[1::2], strict=False))
    marks = draw(
        st.lists(st.builds(ProducerMark, st.just(WEB), st.text(max_size=9), *[st.integers(0, 2**31)] * 4), max_size=3)
    )
    made = a_manifest(*bounds, version=draw(st.integers(0, 2**40)))
    return replace(made, producers=tuple(marks), log_start_offset=draw(st.integers(0, made.cold_end)))


@given(manifest=manifests())
@settings(max_examples=80, deadline=None)
def test_what_is_encoded_is_decoded(manifest: Manifest) -> None:
    assert decode_manifest(KEY, encode_manifest(manifest)) == manifest


def test_every_flipped_bit_and_every_truncation_is_noticed_or_means_the_same() -> None:
    manifest = replace(a_manifest((0, 4), (5, 9)), producers=(ProducerMark(WEB, "p", 0, 1, 2, 3),))
    good = encode_manifest(manifest)
    flips = (
        good[:place] + bytes([good[place] ^ (1 << bit)]) + good[place + 1 :]
        for place in range(len(good))
        for bit in range(8)
    )
    for bad in (*flips, *(good[:length] for length in range(len(good)))):
        try:
            assert decode_manifest(KEY, bad) == manifest
        except Corrupt:
            continue


BROKEN: dict[str, Callable[[Manifest], Manifest]] = {
    "overlap": lambda m: replace(m, segments=(a_segment(0, 4), a_segment(4, 9))),
    "descending": lambda m: replace(m, segments=(a_segment(5, 9), a_segment(0, 4))),
    "a segment that ends before it begins": lambda m: replace(m, segments=(a_segment(5, 4),)),
    "segments beyond the cold end": lambda m: replace(m, cold_end=9),
    "a log start beyond the cold end": lambda m: replace(m, log_start_offset=11),
    "another partition's producer": lambda m: replace(m, producers=(ProducerMark(SHOP, "p", 0, 0, 0, 0),)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_manifest_that_breaks_its_rules_is_not_written(broken: Callable[[Manifest], Manifest]) -> None:
    with pytest.raises(Invalid):
        encode_manifest(broken(a_manifest((0, 4), (5, 9))))


@pytest.mark.parametrize(
    ("old", "new"), [(b'"last_offset":4', b'"last_offset":5'), (b'"cold_end":10', b'"cold_end":7')]
)
def test_a_manifest_that_breaks_its_rules_is_not_read(old: bytes, new: bytes) -> None:
    text = encode_manifest(a_manifest((0, 4), (5, 9)))
    inner = text[text.index(b'"content":') + 10 : -1].replace(old, new)
    body = b'{"format_version":2,"crc32":"%08x","content":%s}' % (zlib.crc32(inner), inner)
    with pytest.raises(Corrupt):
        decode_manifest(KEY, body)


def test_an_unknown_format_version_is_refused() -> None:
    body = encode_manifest(a_manifest((0, 4))).replace(b'"format_version":2', b'"format_version":3')
    with pytest.raises(Corrupt, match="is of format version 3; known is 2"):
        decode_manifest(KEY, body)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'{"format_version":2}', b"\xff", b"[" * 100_000])
def test_an_invalid_manifest_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_manifest(KEY, body)
    assert caught.value.name == KEY


# ---- the log


async def test_a_partition_without_manifests_has_an_empty_one() -> None:
    assert await ManifestLog(MemoryObjectStore(), "web", WEB).latest() == Manifest(WEB)


async def test_versions_follow_each_other_and_the_newest_is_read_by_one_list_and_one_get() -> None:
    store = CountingObjectStore(MemoryObjectStore())
    log = ManifestLog(store, "web", WEB)
    first = await log.append(replace(await log.latest(), cold_end=5, segments=(a_segment(0, 4),)))
    second = await log.append(replace(first, cold_end=10, segments=(*first.segments, a_segment(5, 9))))
    assert (first.version, second.version) == (0, 1)
    reader = ManifestLog(store, "web", WEB)
    before = store.usage()
    assert await reader.latest() == second
    spent = store.usage() - before
    assert (spent.requests(Verb.LIST), spent.requests(Verb.GET), spent.requests()) == (1, 1, 2)
    before = store.usage()
    assert await reader.latest() == second
    assert (store.usage() - before).requests() == (store.usage() - before).requests(Verb.LIST) == 1


async def test_of_two_that_append_one_wins_and_the_other_starts_over() -> None:
    store = MemoryObjectStore()
    one, two = (ManifestLog(store, "web", WEB) for _ in range(2))
    won = await one.append(a_manifest((0, 4), version=-1, name="aa"))
    with pytest.raises(Conflict):
        await two.append(a_manifest((0, 4), version=-1, name="bb"))
    assert await two.latest() == won


async def test_ones_own_manifest_after_a_lost_answer_is_won() -> None:
    store = MemoryObjectStore()
    log = ManifestLog(lost_answer(store, 0), "web", WEB)
    manifest = a_manifest((0, 4), version=-1)
    with pytest.raises(Unavailable):
        await log.append(manifest)
    assert await log.append(manifest) == grown(Manifest(WEB), manifest, ChangeKind.ARCHIVE)
    assert (await log.latest()).version == 0


async def test_the_manifest_of_another_partition_is_corrupt() -> None:
    store = MemoryObjectStore()
    log = ManifestLog(store, "web", WEB)
    await store.create(log.key(0), encode_manifest(Manifest(SHOP, 0)))
    with pytest.raises(Corrupt, match="another partition or version"):
        await log.latest()


async def test_more_versions_than_a_page_holds_are_passed_over() -> None:
    store = MemoryObjectStore()
    for version in range(1_005):
        await store.create(ManifestLog(store, "web", WEB).key(version), encode_manifest(Manifest(WEB, version)))
    assert (await ManifestLog(store, "web", WEB).latest()).version == 1_004
