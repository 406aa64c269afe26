"""Ways to break segments, lists, manifests and their history. Each returns the key that verification must name."""

from __future__ import annotations

from msgspec.structs import replace
from tests.storage.broken_bucket import Bucket, cut, flipped
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.layout import list_key
from tidelog.storage.manifests.shard_history import BLOCK, HistoryBlock, ShardHistory
from tidelog.storage.manifests.shard_manifest import encode_version, head_of, step_of
from tidelog.storage.manifests.shard_values import SegmentSpan, TopicSegment
from tidelog.storage.manifests.topic_state import TopicState, encode_list
from tidelog.storage.segments.topic_segment import sha256_of


async def missing_segment(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.store.delete(key)
    return key


async def truncated_segment(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, cut)
    return key


async def flipped_records(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, flipped)
    return key


async def flipped_footer(bucket: Bucket) -> str:
    key = (await bucket.segment()).key
    await bucket.change(key, lambda data: data[:-60] + bytes([data[-60] ^ 4]) + data[-59:])
    return key


async def swapped_segments(bucket: Bucket) -> str:
    first, second = await bucket.segment(0), await bucket.segment(1)
    await bucket.swap(first.key, second.key)
    return first.key


async def exchanged_segment(bucket: Bucket) -> str:
    """The manifest is altered with it, so that sizes and hashes fit."""
    other = (await bucket.version(1)).topics[SHOP.topic_id].added[0]
    body = (await bucket.store.get(other.key)).data
    key = await bucket.alter_segment(0, lambda each: replace(each, size_bytes=len(body), sha256=sha256_of(body)))
    await bucket.store.put(key, body)
    return key


async def other_checksum(bucket: Bucket) -> str:
    return await bucket.alter_segment(0, lambda each: replace(each, sha256="0" * 64))


async def another_time(bucket: Bucket) -> str:
    return await bucket.alter_segment(0, lambda each: replace(each, max_timestamp_ms=each.max_timestamp_ms + 1))


async def another_count(bucket: Bucket) -> str:
    return await bucket.alter_segment(1, lambda each: with_span(each, records=each.spans[0].records - 1))


async def too_high_level(bucket: Bucket) -> str:
    return await bucket.alter_segment(0, lambda each: replace(each, level=3))


async def run_to_come(bucket: Bucket) -> str:
    return await bucket.alter_segment(0, lambda each: replace(each, run=7))


async def runs_out_of_order(bucket: Bucket) -> str:
    await bucket.alter(lambda topic: replace(topic, next_run=9))
    await bucket.alter_segment(0, lambda each: replace(each, run=5))
    return (await bucket.segment(0)).key


async def spans_out_of_order(bucket: Bucket) -> str:
    return await bucket.alter_segment(0, lambda each: replace(each, spans=each.spans[::-1]))


async def overlapping_segments(bucket: Bucket) -> str:
    return await bucket.alter_segment(1, lambda each: with_span(each, base_offset=each.spans[0].base_offset - 1))


async def beyond_the_cold_end(bucket: Bucket) -> str:
    await bucket.alter_state(lambda state: replace(state, cold_end=state.cold_end - 1))
    return (await bucket.segment(1)).key


def with_span(segment: TopicSegment, **changes: int) -> TopicSegment:
    """`segment` with another first span."""
    span: SegmentSpan = replace(segment.spans[0], **changes)
    return replace(segment, spans=(span, *segment.spans[1:]))


async def gap_between_segments(bucket: Bucket) -> str:
    return await bucket.alter(lambda topic: replace(topic, added=topic.added[1:]))


async def gap_before_the_cold_end(bucket: Bucket) -> str:
    return await bucket.alter(lambda topic: replace(topic, added=topic.added[:1]))


async def log_start_beyond_the_end(bucket: Bucket) -> str:
    return await bucket.alter_state(lambda state: replace(state, log_start_offset=state.cold_end + 1))


# ---- lists


async def listed(bucket: Bucket) -> str:
    """Give the topic a list. Returns its key."""
    key = list_key(0, WEB.topic_id, "ab" * 16)
    topic = (await bucket.version(1)).topics[WEB.topic_id]
    stored, body = encode_list(key, topic.name, WEB.topic_id, 0, topic.consolidated())
    await bucket.store.create(key, body)
    await bucket.alter(lambda topic: topic.listed(stored, topic.consolidated()))
    return key


async def missing_list(bucket: Bucket) -> str:
    key = await listed(bucket)
    await bucket.store.delete(key)
    return key


async def damaged_list(bucket: Bucket) -> str:
    key = await listed(bucket)
    await bucket.change(key, flipped)
    return key


async def list_of_another_topic(bucket: Bucket) -> str:
    """The manifest is altered with it, so that its hash fits."""
    key = await listed(bucket)
    topic = (await bucket.version(1)).topics[SHOP.topic_id]
    stored, body = encode_list(key, topic.name, SHOP.topic_id, 0, topic.consolidated())
    await bucket.store.put(key, body)

    def altered(topic: TopicState) -> TopicState:
        return replace(topic, stored=stored)

    await bucket.alter(altered)
    return key


# ---- versions


async def truncated_manifest(bucket: Bucket) -> str:
    await bucket.change(bucket.manifest(1), cut)
    return bucket.manifest(1)


async def flipped_manifest(bucket: Bucket) -> str:
    await bucket.change(bucket.manifest(1), lambda data: data.replace(b'"cold_end":1', b'"cold_end":2'))
    return bucket.manifest(1)


async def stale_manifest(bucket: Bucket) -> str:
    """Replace the newest version with the content of an older one."""
    await bucket.duplicate(bucket.manifest(0), bucket.manifest(1))
    return bucket.manifest(1)


async def forged_change(bucket: Bucket) -> str:
    manifest = await bucket.version(1)
    forged = replace(manifest, floor=replace(manifest.floor, number=3))
    await bucket.store.put(bucket.manifest(1), encode_version(forged))
    return bucket.manifest(1)


async def forged_past(bucket: Bucket) -> str:
    """Replace an older version with one that hashes to its head, and that the newest does not follow."""
    manifest = await bucket.version(0)
    forged = replace(manifest, floor=replace(manifest.floor, number=3))
    await bucket.store.put(bucket.manifest(0), encode_version(replace(forged, head=head_of(forged))))
    return bucket.manifest(1)


async def lost_past(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.manifest(0))
    return bucket.manifest(0)


async def exchanged_in_the_list(bucket: Bucket) -> str:
    """Both the segment and its entry in the newest version are others: only the history shows it."""
    key = (await bucket.segment()).key
    body = (await bucket.store.get(key)).data
    await bucket.alter_segment(0, lambda each: replace(each, sha256=sha256_of(body + b"x")))
    return bucket.manifest(1)


# ---- the history of versions that were collected


async def collected(bucket: Bucket) -> tuple[str, HistoryBlock]:
    """Turn version 0 into history; return the key and content of its block."""
    first, history = await bucket.version(0), ShardHistory(bucket.store, 0)
    block = HistoryBlock(0, first.previous_head, (step_of(first),))
    await history.write(block)
    await bucket.store.delete(bucket.manifest(0))
    return history.key(0, 0), block


async def truncated_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.change(key, cut)
    return key


async def flipped_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.change(key, lambda data: data.replace(b'"shard":0', b'"shard":1'))
    return key


async def history_of_another_shard(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    await bucket.store.put(key, BLOCK.encode(replace(block, shard=5)))
    return key


async def history_of_other_versions(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    await bucket.store.put(key, BLOCK.encode(replace(block, steps=(*block.steps, replace(block.steps[0], version=1)))))
    return key


async def forged_history(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    step = block.steps[0]
    forged = replace(step, floor=replace(step.floor, number=step.floor.number + 1))
    await bucket.store.put(key, BLOCK.encode(replace(block, steps=(forged,))))
    return key


async def history_with_another_past(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    await bucket.store.put(key, BLOCK.encode(replace(block, previous_head="ab" * 32)))
    return key


async def missing_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.store.delete(key)
    return bucket.manifest(0)


async def overlapping_history(bucket: Bucket) -> str:
    """Put the same version in two blocks, so that one of them is not the history."""
    _, block = await collected(bucket)
    longer = ShardHistory(bucket.store, 0).key(0, 1)
    second = step_of(await bucket.version(1))
    await bucket.store.put(longer, BLOCK.encode(replace(block, steps=(*block.steps, second))))
    return longer


async def history_beyond_the_newest(bucket: Bucket) -> str:
    """Delete all versions that are not history yet."""
    key, _ = await collected(bucket)
    await bucket.store.delete(bucket.manifest(1))
    return key
