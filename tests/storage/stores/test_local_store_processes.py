"""Several processes use the store on a local directory: one races, and one is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidelog.storage.object_store import ObjectInfo
from tidelog.storage.stores.local import LocalObjectStore

INCREMENTS = 25
BODY_BYTES = 1_000_000

COUNTING = """
import asyncio, sys
from pathlib import Path
from tidelog.storage.errors import Conflict
from tidelog.storage.stores.local import LocalObjectStore

async def main():
    store = LocalObjectStore(Path(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        while True:
            seen = await store.get("counter")
            try:
                await store.put("counter", b"%d" % (int(seen.data) + 1), if_version=seen.info.version)
                break
            except Conflict:
                continue
    await store.aclose()

asyncio.run(main())
"""

CREATING = """
import asyncio, sys
from pathlib import Path
from tidelog.storage.errors import Conflict
from tidelog.storage.stores.local import LocalObjectStore

async def main():
    store = LocalObjectStore(Path(sys.argv[1]))
    won = 0
    for number in range(100):
        try:
            await store.create(f"wal/{number:08d}", b"x")
            won += 1
        except Conflict:
            continue
    print(won)
    await store.aclose()

asyncio.run(main())
"""

APPENDING = """
import asyncio, sys
from pathlib import Path
from tidelog.storage.stores.local import LocalObjectStore

async def main():
    store = LocalObjectStore(Path(sys.argv[1]))
    body = b"x" * int(sys.argv[2])
    for number in range(100_000):
        await store.create(f"wal/{number:08d}", body)
        print(number, flush=True)

asyncio.run(main())
"""


def test_a_conditional_put_is_atomic_among_processes(tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path, "counter", b"0"))
    workers = [_started(COUNTING, tmp_path, INCREMENTS) for _ in range(3)]
    for worker in workers:
        worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert (tmp_path / "counter").read_bytes() == b"%d" % (3 * INCREMENTS)


def test_a_create_has_one_winner_among_processes(tmp_path: Path) -> None:
    workers = [_started(CREATING, tmp_path) for _ in range(3)]
    assert sum(int(worker.communicate(timeout=60)[0]) for worker in workers) == 100
    assert len(asyncio.run(_listed(tmp_path, "wal/"))) == 100


def test_a_killed_writer_leaves_whole_objects_and_all_that_it_acknowledged(tmp_path: Path) -> None:
    with _started(APPENDING, tmp_path, BODY_BYTES) as writer:
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline() for _ in range(5)]
        writer.kill()
        acknowledged += [line for line in writer.stdout if line.endswith("\n")]
    infos = asyncio.run(_listed(tmp_path, "wal/"))
    assert {info.size for info in infos} == {BODY_BYTES}
    assert len(infos) - len(acknowledged) in (0, 1)


def _started(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def _create(root: Path, key: str, body: bytes) -> None:
    store = LocalObjectStore(root)
    await store.create(key, body)
    await store.aclose()


async def _listed(root: Path, prefix: str) -> Sequence[ObjectInfo]:
    store = LocalObjectStore(root)
    try:
        return await store.list(prefix)
    finally:
        await store.aclose()
