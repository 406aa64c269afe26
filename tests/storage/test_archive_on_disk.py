"""The archive is a table: pyarrow alone reads what was archived to a local directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from tests.storage.archive_scenes import Scene, archiver_of, check_logs, manifest_of
from tests.storage.record_tables import WEB, WEB_1, record_table

from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.records import STORED_SCHEMA, from_stored
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.stores.local import LocalObjectStore


async def test_a_topic_archived_on_disk_is_a_dataset(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "data")
    scene = Scene(store)
    archiver = archiver_of(scene, store)
    for _ in range(3):
        await scene.append({WEB: 40, WEB_1: 3})
        await scene.append({WEB: 2})
        await archiver.run_once(scene.next_seq)
    await check_logs(scene, store)

    table = ds.dataset(tmp_path / "data" / "topics" / "web").to_table()
    assert table.schema.names == STORED_SCHEMA.names
    for place, count in ((WEB, 126), (WEB_1, 9)):
        rows = table.filter(ds.field("partition") == place.partition).sort_by("offset").cast(STORED_SCHEMA)
        assert from_stored(rows).drop_columns(["partition"]).equals(record_table(range(count)))

    reader = SegmentReader(store)
    spans = (await manifest_of(store)).topics[WEB.topic_id].segments.spans(WEB.partition)
    read = pa.concat_tables([await reader.read(found, 0) for found in spans])
    assert read.equals(record_table(range(126)))
    found = [finding async for finding in BucketVerification(store, deep=True).findings()]
    assert found == []
    await store.aclose()
