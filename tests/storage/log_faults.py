"""Ways to break WALs, the topics of the journal, and copies. Each returns the key that verification must name."""

from __future__ import annotations

from dataclasses import replace

from tests.storage.broken_bucket import Bucket, cut, flipped
from tests.storage.known_topics import known, scene_topics
from tests.storage.record_tables import SHOP, WEB

from tidelog.storage.bucket.copy_mark import CopyMark, encode_copy_mark
from tidelog.storage.layout import COPY_KEY
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal_index import IndexedEntry, WalIndex, encode_block, index_row


async def missing_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(8))
    return bucket.entry(8)


async def missing_first_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(7))
    return bucket.entry(7)


async def missing_last_entry(bucket: Bucket) -> str:
    await bucket.store.delete(bucket.entry(9))
    return WalIndex(bucket.store, 0).key(0)


async def truncated_entry(bucket: Bucket) -> str:
    await bucket.change(bucket.entry(8), cut)
    return bucket.entry(8)


async def flipped_entry(bucket: Bucket) -> str:
    await bucket.change(bucket.entry(8), flipped)
    return bucket.entry(8)


async def swapped_entries(bucket: Bucket) -> str:
    await bucket.swap(bucket.entry(7), bucket.entry(8))
    return bucket.entry(7)


async def duplicated_entry(bucket: Bucket) -> str:
    await bucket.duplicate(bucket.entry(9), bucket.entry(10))
    return bucket.entry(10)


async def gap_in_offsets(bucket: Bucket) -> str:
    bucket.scene.next_offsets[SHOP] += 1
    await bucket.scene.append({SHOP: 1}, epoch=2)
    return bucket.entry(10)


async def overlap_in_offsets(bucket: Bucket) -> str:
    bucket.scene.next_offsets[SHOP] -= 1
    await bucket.scene.append({SHOP: 1}, epoch=2)
    return bucket.entry(10)


async def epoch_back(bucket: Bucket) -> str:
    await bucket.scene.append({SHOP: 1}, epoch=1)
    return bucket.entry(10)


async def epoch_without_start(bucket: Bucket) -> str:
    await bucket.scene.append({SHOP: 1}, epoch=3)
    return bucket.entry(10)


async def lost_manifests(bucket: Bucket) -> str:
    """Without a manifest, the log must begin with entry 0."""
    for version in (0, 1):
        await bucket.store.delete(bucket.manifest(version))
    return bucket.entry(0)


async def lost_newest_manifest(bucket: Bucket) -> str:
    """The version before it has an earlier floor, whose entries were deleted."""
    await bucket.store.delete(bucket.manifest(1))
    return bucket.entry(5)


async def floor_too_far(bucket: Bucket) -> str:
    """Move the floor over an entry that is not archived: its records are neither in the log nor in a segment."""
    return await bucket.append(ManifestChange(ChangeKind.SWEEP, floor=Floor(8, 2)))


async def later_format(bucket: Bucket) -> str:
    """A later version of Tidelog wrote an entry's manifest."""
    await bucket.change(bucket.manifest(1), lambda data: data.replace(b'"format_version":3', b'"format_version":9'))
    return bucket.manifest(1)


async def wrong_index(bucket: Bucket) -> str:
    entries = [IndexedEntry(*await bucket.scene.wal.header_and_size(seq)) for seq in (7, 8)]
    forged = replace(entries[1], header=replace(entries[1].header, epoch=9))
    await WalIndex(bucket.store, 0).put(0, encode_block([index_row(entries[0]), index_row(forged)]))
    return WalIndex(bucket.store, 0).key(0)


async def index_of_another_shard(bucket: Bucket) -> str:
    entry = IndexedEntry(*await bucket.scene.wal.header_and_size(7))
    foreign = replace(entry, header=replace(entry.header, shard=4))
    await WalIndex(bucket.store, 0).put(0, encode_block([index_row(foreign)]))
    return WalIndex(bucket.store, 0).key(0)


async def records_in_another_shard(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("shop", SHOP.topic_id, 3)
    return bucket.entry(7)


async def partition_that_is_none(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("web", WEB.topic_id, 0)
    return f"topics/web/{WEB.topic_id}/"


async def topic_under_another_name(bucket: Bucket) -> str:
    bucket.topics.present = scene_topics() | known("wet", WEB.topic_id, 0, 0)
    return f"topics/web/{WEB.topic_id}/"


async def topic_never_heard_of(bucket: Bucket) -> str:
    bucket.topics.present = known("shop", SHOP.topic_id, 0)
    return f"topics/web/{WEB.topic_id}/"


async def flipped_copy_mark(bucket: Bucket) -> str:
    mark = encode_copy_mark(CopyMark("s3://there", "id", whole=True, wal_ends={0: 12}))
    await bucket.store.put(COPY_KEY, mark.replace(b'"0":12', b'"0":13'))
    return COPY_KEY


async def unfinished_copy(bucket: Bucket) -> str:
    await bucket.store.put(COPY_KEY, encode_copy_mark(CopyMark("s3://there", "id", whole=False)))
    return COPY_KEY
