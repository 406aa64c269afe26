"""Ways to break segments and manifests. Each returns the key that verification must name."""

from __future__ import annotations

from dataclasses import replace

from tests.storage.archive_scenes import manifest_of
from tests.storage.broken_bucket import Bucket, cut, flipped
from tests.storage.manifest_histories import decode_manifest
from tests.storage.record_tables import WEB, WEB_1, record_table

from tidelog.storage.layout import manifest_prefix, parse_segment_key
from tidelog.storage.manifests.manifest import ChangeKind
from tidelog.storage.manifests.manifest_chain import step_of
from tidelog.storage.manifests.manifest_history import HistoryBlock, ManifestHistory, encode_block
from tidelog.storage.segments.segment_codec import encode_segment


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


async def segment_of_another_partition(bucket: Bucket) -> str:
    """With the same offsets and size, so that the listing shows no difference."""
    segment = await bucket.segment()
    segment_id = parse_segment_key(segment.key).segment_id
    made = encode_segment("web", WEB_1, record_table(range(segment.records)), segment_id)
    assert made.segment.size_bytes == segment.size_bytes
    await bucket.store.put(segment.key, made.body)
    return segment.key


async def altered_segment(bucket: Bucket) -> str:
    """Sound Parquet with the same offsets under the same name, but other records."""
    segment = await bucket.segment()
    rows = [(b"k", b"forged %d" % n, None) for n in range(segment.records)]
    segment_id = parse_segment_key(segment.key).segment_id
    made = encode_segment("web", WEB, record_table(range(segment.records), rows), segment_id)
    await bucket.store.put(segment.key, made.body)
    return segment.key


async def other_checksum(bucket: Bucket) -> str:
    segment = await bucket.segment()
    await bucket.rewrite(1, segment.sha256.encode(), b"0" * 64)
    return segment.key


async def another_count(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    await bucket.rewrite(1, b'"records":%d' % segment.records, b'"records":%d' % (segment.records - 1))
    return segment.key


async def another_time(bucket: Bucket) -> str:
    segment = await bucket.segment()
    old = b'"max_timestamp_ms":%d' % segment.max_timestamp_ms
    await bucket.rewrite(1, old, old + b"7")
    return segment.key


async def segment_of_another_topic(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    key = segment.key.replace("topics/web/", "topics/shop/")
    await bucket.rewrite(1, segment.key.encode(), key.encode())
    return key


async def too_high_level(bucket: Bucket) -> str:
    segment = await bucket.segment()
    await bucket.rewrite(1, b'"level":0', b'"level":3')
    return segment.key


async def duplicated_segment(bucket: Bucket) -> str:
    segment = await bucket.segment()
    key = segment.key.replace(parse_segment_key(segment.key).segment_id, "cd" * 16)
    await bucket.duplicate(segment.key, key)
    return key


async def gap_between_segments(bucket: Bucket) -> str:
    manifest = await manifest_of(bucket.store, WEB)
    await bucket.append(replace(manifest, segments=manifest.segments[1:]), ChangeKind.EXPIRE)
    return bucket.manifest(2)


async def gap_before_the_cold_end(bucket: Bucket) -> str:
    manifest = await manifest_of(bucket.store, WEB)
    await bucket.append(replace(manifest, segments=manifest.segments[:1]), ChangeKind.EXPIRE)
    return bucket.manifest(2)


async def overlapping_segments(bucket: Bucket) -> str:
    segment = await bucket.segment(1)
    await bucket.rewrite(1, b'"base_offset":%d' % segment.base_offset, b'"base_offset":%d' % (segment.base_offset - 1))
    return bucket.manifest(1)


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


async def lost_manifest(bucket: Bucket) -> str:
    """Delete the newest version and the log's copy of its records: only a segment shows that they existed."""
    key = (await manifest_of(bucket.store, WEB_1)).segments[-1].key
    await bucket.store.delete(f"{manifest_prefix('web', WEB.topic_id, 1)}{1:020d}.json")
    return key


async def lost_manifest_before_the_log(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.manifest(1))
    return bucket.manifest(0)


async def swapped_manifests(bucket: Bucket) -> str:
    await bucket.swap(bucket.manifest(1), f"{manifest_prefix('web', WEB.topic_id, 1)}{1:020d}.json")
    return bucket.manifest(1)


async def forged_change(bucket: Bucket) -> str:
    await bucket.rewrite(1, b'"log_start_offset":0', b'"log_start_offset":1')
    return bucket.manifest(1)


async def forged_past(bucket: Bucket) -> str:
    """Replace an older version with one that the newest does not follow."""
    segment = await bucket.segment()
    await bucket.rewrite(0, segment.sha256.encode(), b"0" * 64)
    return bucket.manifest(0)


async def lost_past(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.manifest(0))
    return bucket.manifest(0)


# ---- the history of versions that were collected


def history_of(bucket: Bucket) -> ManifestHistory:
    return ManifestHistory(bucket.store, "web", WEB)


async def collected(bucket: Bucket) -> tuple[str, HistoryBlock]:
    """Turn version 0 into history; return the key and content of its block."""
    key = bucket.manifest(0)
    first = decode_manifest(key, (await bucket.store.get(key)).data)
    block = HistoryBlock(WEB, first.previous_head, (step_of(first),))
    await history_of(bucket).write(block)
    await bucket.store.delete(key)
    return history_of(bucket).key(0, 0), block


async def truncated_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.change(key, cut)
    return key


async def flipped_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.change(key, lambda data: data.replace(b'"version":0', b'"version":1'))
    return key


async def history_of_another_partition(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    await bucket.store.put(key, encode_block(replace(block, topic_partition=WEB_1)))
    return key


async def history_of_other_versions(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    steps = (*block.steps, replace(block.steps[0], version=1))
    await bucket.store.put(key, encode_block(replace(block, steps=steps)))
    return key


async def forged_history(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    forged = replace(block.steps[0], cold_end=block.steps[0].cold_end + 1)
    await bucket.store.put(key, encode_block(replace(block, steps=(forged,))))
    return key


async def history_with_another_past(bucket: Bucket) -> str:
    key, block = await collected(bucket)
    await bucket.store.put(key, encode_block(replace(block, previous_head="ab" * 32)))
    return key


async def missing_history(bucket: Bucket) -> str:
    key, _ = await collected(bucket)
    await bucket.store.delete(key)
    return bucket.manifest(0)


async def overlapping_history(bucket: Bucket) -> str:
    """Put the same version in two blocks, so that one of them is not the history."""
    _, block = await collected(bucket)
    longer = history_of(bucket).key(0, 1)
    key = bucket.manifest(1)
    second = decode_manifest(key, (await bucket.store.get(key)).data)
    await bucket.store.put(longer, encode_block(replace(block, steps=(*block.steps, step_of(second)))))
    return longer


async def history_beyond_the_newest(bucket: Bucket) -> str:
    """Delete all versions that are not history yet."""
    key, _ = await collected(bucket)
    await bucket.store.delete(bucket.manifest(1))
    return key
