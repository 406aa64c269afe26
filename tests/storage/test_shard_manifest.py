"""A shard's manifest as a value: changes, the lookup of offsets, the chain, and the stored forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.storage.shard_histories import SHARD, TOPIC, TOPIC_ID, TopicHistory

from tidelog.storage.errors import Corrupt, Invalid, NewerFormat
from tidelog.storage.manifests.segment_list import DoesNotApply
from tidelog.storage.manifests.shard_manifest import (
    ManifestChange,
    ShardManifest,
    TopicChange,
    applied,
    decode_version,
    encode_version,
    head_of,
)
from tidelog.storage.manifests.shard_values import ChangeKind, ColdState, SegmentSpan
from tidelog.storage.manifests.topic_state import TopicState, decode_list, encode_list
from tidelog.storage.wal.floor import Floor

HISTORIES = st.builds(lambda seed: TopicHistory(Random(seed)), st.integers(0, 2**32))


def grown(history: TopicHistory, steps: int) -> TopicState:
    for _ in range(steps):
        history.step()
    return history.manifest.topics[TOPIC_ID]


def listed(topic: TopicState) -> TopicState:
    """`topic` after its differences went into a list, which was stored and read."""
    ref, body = encode_list("list", TOPIC, TOPIC_ID, SHARD, topic.consolidated())
    return topic.listed(ref, decode_list(ref, TOPIC, TOPIC_ID, SHARD, body))


@settings(max_examples=60, deadline=None)
@given(HISTORIES, st.integers(1, 30), st.integers(0, 30))
def test_an_offset_is_found_in_the_segment_that_holds_it(history: TopicHistory, before: int, after: int) -> None:
    """However the segments are spread over the list and the differences to it."""
    topic = listed(grown(history, before))
    history.manifest = structs.replace(history.manifest, topics={TOPIC_ID: topic})
    topic = grown(history, after)
    for (partition, offset), key in history.holders.items():
        found = topic.segments.find(partition, offset)
        assert found is not None
        assert (found.segment.key, found.span.partition) == (key, partition)
        assert found.span.base_offset <= offset <= found.span.last_offset
        before_span = found.segment.spans[: found.segment.spans.index(found.span)]
        assert found.first_row == sum(span.records for span in before_span)
    for partition in range(history.partitions):
        state = topic.partition(partition)
        assert topic.segments.find(partition, state.cold_end) is None
        at = state.log_start_offset
        for found in topic.segments.spans(partition):
            assert found.span.base_offset == at
            at = found.span.next_offset
        assert at == state.cold_end


@settings(max_examples=60, deadline=None)
@given(HISTORIES, st.integers(1, 25), st.integers(0, 25))
def test_stored_forms_are_read_back(history: TopicHistory, before: int, after: int) -> None:
    topic = listed(grown(history, before))
    history.manifest = structs.replace(history.manifest, topics={TOPIC_ID: topic})
    topic = grown(history, after)
    found = decode_version("version", encode_version(history.manifest))
    state = structs.replace(found.topics[TOPIC_ID], base=topic.base)
    assert structs.replace(found, topics={TOPIC_ID: state}) == history.manifest
    again = listed(topic)
    assert list(again.segments) == list(topic.segments)
    assert again.all_partitions == topic.all_partitions
    assert again.differences == 0


@given(HISTORIES, st.integers(2, 20))
def test_the_head_covers_every_change(history: TopicHistory, steps: int) -> None:
    heads = []
    for _ in range(steps):
        before = history.manifest
        change = history.step()
        assert history.manifest.previous_head == before.head
        assert head_of(history.manifest) == history.manifest.head
        floor = replace(change, floor=Floor(before.floor.number + 77))
        states = dict(change.topics[TOPIC_ID].partitions) | {9: ColdState(cold_end=5)}
        moved = replace(change, topics={TOPIC_ID: replace(change.topics[TOPIC_ID], partitions=states)})
        heads += [history.manifest.head, applied(before, floor).head, applied(before, moved).head]
    assert len(set(heads)) == len(heads)


def test_a_version_that_was_altered_is_refused() -> None:
    history = TopicHistory(Random(1))
    grown(history, 5)
    altered = structs.replace(history.manifest, floor=Floor(history.manifest.floor.number + 1))
    with pytest.raises(Corrupt, match="does not hash to its head"):
        decode_version("manifests/0003/4", encode_version(altered))


def test_every_flipped_bit_and_every_truncation_is_noticed_or_means_the_same() -> None:
    """Of a version, and of a list."""
    history = TopicHistory(Random(6))
    topic = grown(history, 3)
    good = encode_version(history.manifest)
    for bad in damaged(good):
        try:
            assert decode_version("version", bad) == history.manifest
        except (Corrupt, NewerFormat):
            continue
    ref, body = encode_list("list", TOPIC, TOPIC_ID, SHARD, topic.consolidated())
    for bad in damaged(body):
        with pytest.raises(Corrupt, match="another sha256"):
            decode_list(ref, TOPIC, TOPIC_ID, SHARD, bad)


def damaged(good: bytes) -> Iterator[bytes]:
    yield from (good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in range(len(good)))
    yield from (good[:length] for length in range(len(good)))


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'{"format_version":3}', b"\xff", b"[" * 100_000])
def test_an_invalid_version_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_version("version", body)
    assert caught.value.name == "version"


def test_a_list_that_was_exchanged_is_refused() -> None:
    history = TopicHistory(Random(1))
    topic = grown(history, 5)
    ref, _ = encode_list("list", TOPIC, TOPIC_ID, SHARD, topic.consolidated())
    _, other = encode_list("list", TOPIC, TOPIC_ID, SHARD, grown(history, 1).consolidated())
    with pytest.raises(Corrupt, match="another sha256"):
        decode_list(ref, TOPIC, TOPIC_ID, SHARD, other)


def test_a_change_that_does_not_fit_is_refused() -> None:
    history = TopicHistory(Random(2))
    change = history.archived()
    once = applied(history.manifest, change)
    with pytest.raises(DoesNotApply, match="is listed already"):
        applied(once, change)
    with pytest.raises(DoesNotApply, match="is not listed"):
        applied(once, ManifestChange(ChangeKind.MERGE, {TOPIC_ID: TopicChange(TOPIC, removed=("other",))}))
    back = {partition: ColdState() for partition in change.topics[TOPIC_ID].partitions}
    with pytest.raises(DoesNotApply, match="would move back"):
        applied(once, ManifestChange(ChangeKind.EXPIRE, {TOPIC_ID: TopicChange(TOPIC, partitions=back)}))
    with pytest.raises(DoesNotApply, match="the floor is"):
        applied(once, ManifestChange(ChangeKind.ARCHIVE, floor=Floor(0)))


@pytest.mark.parametrize(
    "spans",
    [[(0, 5, 4)], [(0, 0, 10)], [(1, 0, 4), (0, 0, 4)], [(0, 0, 4), (0, 5, 9)], [(7, 0, 0)]],
    ids=["ends before it begins", "beyond the cold end", "descending", "twice", "a partition that has no records"],
)
def test_a_segment_that_breaks_the_rules_is_not_listed(spans: list[tuple[int, int, int]]) -> None:
    history = TopicHistory(Random(2))
    segment = history.segment(0, 0, [SegmentSpan(number, first, last, 1, 1) for number, first, last in spans])
    change = TopicChange(TOPIC, added=(segment,), partitions={0: ColdState(0, 10), 1: ColdState(0, 10)})
    with pytest.raises(Invalid, match="cannot have offsets"):
        applied(history.manifest, ManifestChange(ChangeKind.ARCHIVE, {TOPIC_ID: change}))


def test_a_log_start_beyond_the_cold_end_is_refused() -> None:
    change = TopicChange(TOPIC, partitions={0: ColdState(11, 10)})
    with pytest.raises(Invalid, match="beyond its cold end"):
        applied(ShardManifest(0), ManifestChange(ChangeKind.DELETE_RECORDS, {TOPIC_ID: change}))


def test_segments_that_leave_are_garbage_until_they_are_collected() -> None:
    history = TopicHistory(Random(3))
    for _ in range(3):
        history.manifest = applied(history.manifest, history.archived())
    keys = [segment.key for segment in history.manifest.topics[TOPIC_ID].segments]
    merged = applied(history.manifest, history.merged())
    left = [garbage.key for garbage in merged.garbage]
    assert left
    assert set(left) <= set(keys)
    collected = applied(merged, ManifestChange(ChangeKind.COLLECT, collected=frozenset(left)))
    assert collected.garbage == ()


def test_a_topic_that_is_dropped_leaves_only_garbage() -> None:
    history = TopicHistory(Random(4))
    topic = listed(grown(history, 8))
    manifest = structs.replace(history.manifest, topics={TOPIC_ID: topic})
    dropped = applied(manifest, ManifestChange(ChangeKind.DELETE_TOPIC, dropped=(TOPIC_ID,)))
    assert dropped.topics == {}
    keys = {segment.key for segment in topic.segments} | {"list"}
    assert keys <= {garbage.key for garbage in dropped.garbage}


def test_epochs_of_the_floor_never_decrease() -> None:
    manifest = applied(ShardManifest(0), ManifestChange(ChangeKind.ARCHIVE, floor=Floor(5, 7)))
    assert applied(manifest, ManifestChange(ChangeKind.ARCHIVE, floor=Floor(6, 2))).floor == Floor(6, 7)
