"""The store on a local directory: the contract, and the behaviour of a directory beyond it."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.storage.stores.conformance import ObjectStoreConformance

from tidelog.storage.errors import Conflict, Denied, Invalid, NotFound, TidelogError, Unavailable
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.local import LEFTOVER_AGE_MS, LocalObjectStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "made" / "here"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[LocalObjectStore]:
    store = LocalObjectStore(root)
    yield store
    await store.aclose()


class TestLocalObjectStore(ObjectStoreConformance):
    versions_follow_content = False

    @pytest.fixture
    async def store(self, root: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(root)
        yield store
        await store.aclose()


async def test_an_object_is_a_plain_file_and_leaves_nothing_else(store: LocalObjectStore, root: Path) -> None:
    await store.create("wal/0000/x.parquet", b"x")
    await store.put("wal/0000/x.parquet", b"y")
    with pytest.raises(Conflict):
        await store.create("wal/0000/x.parquet", b"z")
    assert _files(root) == {"wal/0000/x.parquet", ".tidelog/lock"}
    assert (root / "wal/0000/x.parquet").read_bytes() == b"y"


async def test_another_store_on_the_directory_sees_the_same(store: LocalObjectStore, root: Path) -> None:
    version = await store.create("a/b", b"first")
    other = LocalObjectStore(root)
    await other.put("a/b", b"second", if_version=version)
    assert (await store.get("a/b")).data == b"second"
    await other.aclose()


class TestKeysThatWouldLeaveTheRoot:
    async def test_through_a_linked_folder(self, store: LocalObjectStore, root: Path, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"s")
        (root / "link").symlink_to(outside)
        for call in (
            store.get("link/secret"),
            store.head("link/secret"),
            store.put("link/secret", b""),
            store.create("link/new", b""),
            store.create("link/a/b/new", b""),
            store.delete("link/secret"),
        ):
            with pytest.raises(Invalid, match="symbolic link"):
                await call
        assert [path.name for path in outside.iterdir()] == ["secret"]
        assert list(await store.list("")) == list(await store.list("link/")) == []

    async def test_through_a_linked_file(self, store: LocalObjectStore, root: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"s")
        (root / "link").symlink_to(tmp_path / "secret")
        for call in (store.get("link"), store.head("link")):
            with pytest.raises(Invalid):
                await call
        with pytest.raises(Conflict):
            await store.create("link", b"x")
        assert list(await store.list("")) == []
        assert (tmp_path / "secret").read_bytes() == b"s"

    async def test_a_root_that_is_itself_a_link_is_fine(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "root").symlink_to(tmp_path / "real")
        store = LocalObjectStore(tmp_path / "root")
        await store.create("a/b", b"x")
        assert (tmp_path / "real/a/b").read_bytes() == b"x"
        await store.aclose()


class TestThePrivateFolder:
    async def test_no_key_leads_into_it_and_no_listing_shows_it(self, store: LocalObjectStore) -> None:
        with pytest.raises(Invalid, match="own"):
            await store.put(".tidelog/lock", b"")
        await store.put("a", b"")
        assert [info.key for info in await store.list("")] == ["a"]
        assert list(await store.list(".tidelog/")) == list(await store.list(".tide")) == []

    async def test_old_leftovers_are_removed_and_young_ones_are_somebodys(self, root: Path) -> None:
        folder = root / ".tidelog/tmp"
        folder.mkdir(parents=True)
        for name in ("old", "young"):
            (folder / name).write_bytes(b"x")
        old_s = time.time() - LEFTOVER_AGE_MS / 1_000 - 60
        os.utime(folder / "old", (old_s, old_s))
        await LocalObjectStore(root).aclose()
        assert [path.name for path in folder.iterdir()] == ["young"]


class TestWhatADirectoryCannotHold:
    async def test_an_object_that_is_another_objects_folder(self, store: LocalObjectStore) -> None:
        await store.create("a/b", b"")
        for call in (store.create("a", b""), store.put("a", b""), store.create("a/b/c", b""), store.put("a/b/c", b"")):
            with pytest.raises(Invalid):
                await call
        assert [info.key for info in await store.list("")] == ["a/b"]

    async def test_a_part_of_a_key_over_255_bytes(self, store: LocalObjectStore) -> None:
        with pytest.raises(Invalid, match="too long"):
            await store.create("x" * 256, b"")

    async def test_a_path_that_is_not_a_regular_file_is_not_found(self, store: LocalObjectStore, root: Path) -> None:
        os.mkfifo(root / "pipe")
        with pytest.raises(NotFound):
            await store.get("pipe")

    async def test_foreign_files_that_no_key_names_are_passed_over(self, store: LocalObjectStore, root: Path) -> None:
        (root / "größe").write_bytes(b"")
        await store.create("a", b"")
        assert [info.key for info in await store.list("")] == ["a"]


class TestWhatTheSystemSays:
    """The tests simulate the kernel's answers, because a full disk, a foreign owner or a signal is not available
    everywhere."""

    @pytest.mark.parametrize(
        ("number", "expected", "told"),
        [
            (errno.ENOSPC, Unavailable, "disk is full"),
            (errno.EDQUOT, Unavailable, "disk is full"),
            (errno.EIO, Unavailable, "did not answer"),
            (errno.EMFILE, Unavailable, "did not answer"),
            (errno.EACCES, Denied, "permissions"),
            (errno.EROFS, Denied, "permissions"),
        ],
    )
    async def test_a_failed_write_is_reported_and_leaves_nothing(
        self,
        store: LocalObjectStore,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        expected: type[TidelogError],
        told: str,
    ) -> None:
        def fail(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail)
            for call in (store.create("a/b", b"x"), store.put("a/b", b"x")):
                with pytest.raises(expected, match=told):
                    await call
        assert list(await store.list("")) == list((root / ".tidelog/tmp").iterdir()) == []
        await store.create("a/b", b"after")

    async def test_a_folder_that_cannot_be_synced_leaves_the_outcome_open(
        self, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.create("a/first", b"")
        sync = os.fsync

        def fail_on_folders(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, "injected")
            sync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail_on_folders)
            with pytest.raises(Unavailable):
                await store.create("a/b", b"x")
        with pytest.raises(Conflict):
            await store.create("a/b", b"x")

    async def test_short_writes_are_gone_on_with(
        self, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:7])))
        await store.create("a", memoryview(bytes(range(256))))
        assert (await store.get("a")).data == bytes(range(256))

    async def test_short_reads_are_gone_on_with(self, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        read = os.pread
        await store.create("a", bytes(range(256)))
        monkeypatch.setattr(os, "pread", lambda descriptor, size, at: read(descriptor, min(size, 7), at))
        assert (await store.get("a")).data == bytes(range(256))

    async def test_a_file_that_shrinks_under_a_read_is_not_taken_as_whole(
        self, store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.create("a", b"0123456789")
        monkeypatch.setattr(os, "pread", lambda *_: b"")
        with pytest.raises(Unavailable, match="shorter"):
            await store.get("a")


async def test_a_body_is_synced_before_it_is_visible_and_its_folders_after(
    store: LocalObjectStore, root: Path, spied: list[str]
) -> None:
    await store.create("a/b/c", b"x")
    assert spied == ["sync file", f"sync {root}", f"sync {root / 'a'}", "link c", f"sync {root / 'a/b'}"]
    spied.clear()
    await store.create("a/b/d", b"x")
    assert spied == ["sync file", "link d", f"sync {root / 'a/b'}"]
    spied.clear()
    with pytest.raises(Conflict):
        await store.create("a/b/d", b"x")
    assert spied == ["sync file", "link d", f"sync {root / 'a/b'}"]


async def test_a_second_process_syncs_folders_that_the_first_may_not_have(
    store: LocalObjectStore, root: Path, spied: list[str]
) -> None:
    (root / "a").mkdir()
    await store.create("a/b", b"x")
    assert spied == ["sync file", f"sync {root}", "link b", f"sync {root / 'a'}"]


async def test_a_listing_opens_no_folder_that_its_bounds_exclude(
    store: LocalObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a/1/x", "a/2/x", "a/3/x", "b/1/x", "c/1/x"):
        await store.create(key, b"")
    opened: list[str] = []
    scandir = os.scandir

    def spy(path: Path) -> Any:
        opened.append(Path(path).relative_to(root).as_posix())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", spy)
    assert [info.key for info in await store.list("a/", start_after="a/2/x")] == ["a/3/x"]
    assert opened == ["a", "a/2", "a/3"]
    opened.clear()
    assert [info.key for info in await store.list("", start_after="b", limit=1)] == ["b/1/x"]
    assert opened == [".", "b", "b/1"]


@pytest.fixture
def spied(store: LocalObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is synced and linked from here on, in order."""
    calls: list[str] = []
    sync, link = os.fsync, os.link

    def folders() -> list[Path]:
        return [root, *(path for path in root.rglob("*") if path.is_dir())]

    def spy_on_sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        folder = next((path for path in folders() if path.stat().st_ino == status.st_ino), None)
        calls.append(f"sync {folder}" if folder else "sync file")
        sync(descriptor)

    def spy_on_link(source: Path, target: Path) -> None:
        calls.append(f"link {target.name}")
        link(source, target)

    monkeypatch.setattr(os, "fsync", spy_on_sync)
    monkeypatch.setattr(os, "link", spy_on_link)
    return calls


def _files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
