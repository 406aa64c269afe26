"""Count the segments in the versions of all manifests of a bucket by the work that wrote them, and the merges.

Every version is there for ``delete.grace.ms``, so a bucket that is younger has all of them. Prints a JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter

from tidelog.storage.bucket.listing import shards_in
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.opening import open_store


async def count(store: ObjectStore) -> dict[str, int]:
    found = Counter({"archive": 0, "merge": 0, "merges": 0})
    for shard in await shards_in(store):
        log = ShardLog(store, shard, Runtime())
        async for version in log.versions():
            recorded = (await log.read(version)).recorded
            if recorded is None:
                continue
            added = sum(len(step.added) for step in recorded.topics.values())
            found["merges"] += recorded.kind is ChangeKind.MERGE
            found["archive" if recorded.kind is ChangeKind.ARCHIVE else "merge"] += added
    return dict(found)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    store = open_store(parser.parse_args().store, runtime=Runtime())
    print(json.dumps(await count(store)))
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())
