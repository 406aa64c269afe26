"""The directory under a local store: file paths, the order of listings, and the meaning of disk errors.

- A key's path never leaves the root, not even through a symbolic link, and never enters the private folder.
- Files are listed in the order of their keys' bytes, and a folder outside a listing's bounds is not opened.
- An `OSError` becomes the error of Tidelog that says what to do next.

`LocalObjectStore` decides when an object becomes visible.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.storage.errors import Denied, Invalid, NoSuchObject, Unavailable
from tidelog.storage.object_store import checked_key, is_key_prefix

PRIVATE_FOLDER = ".tidelog"
"""Holds temporary files and the lock. Its name begins with a dot, so that Spark and other readers skip it."""


class Directory:
    """The tree under `root`, which is created if it does not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self.sync(folder.parent)
        self._synced: set[Path] = {self.root}

    def path(self, key: str) -> Path:
        """The file of `key`. Raises `Invalid` if it is outside of the root or in the private folder."""
        path = self.root / checked_key(key)
        if key.split("/", 1)[0] == PRIVATE_FOLDER:
            raise Invalid(f"{key!r} is not a key here: {PRIVATE_FOLDER}/ is the store's own", field="key")
        if os.path.realpath(path.parent) != str(path.parent):
            raise Invalid(f"{key!r} leads through a symbolic link; put no links into {self.root}", field="key")
        return path

    @contextmanager
    def opened(self, key: str) -> Iterator[int]:
        """A descriptor to read the file of `key`. Raises `NoSuchObject`, also if a folder has that name."""
        path = self.path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchObject(f"there is no object {key}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NoSuchObject(f"there is no object {key}: that path is not a regular file")
            yield descriptor
        finally:
            os.close(descriptor)

    def refuse_folder(self, path: Path, key: str) -> None:
        """Raise `Invalid` if `path`, the file of `key`, is a folder."""
        if path.is_dir():
            raise Invalid(f"{key!r} is the folder of other objects; a local directory cannot hold both", field="key")

    def make_folder(self, folder: Path) -> None:
        """Create `folder` and its parents, and sync them, so that they survive a power cut."""
        if folder in self._synced:
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self.sync(folder.parent)
        self._synced.add(folder)

    def sync(self, folder: Path) -> None:
        """Make the names in `folder` durable."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock against other threads and processes. The kernel releases it if the holder dies."""
        path = self.root / PRIVATE_FOLDER / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def keys(self, prefix: str, start_after: str) -> Iterator[str]:
        """The keys that start with `prefix` and sort after `start_after`, ascending by their bytes."""
        folder, _, _ = prefix.rpartition("/")
        if not is_key_prefix(prefix) or (folder and not self._is_folder(folder)):
            return
        yield from self._walk(f"{folder}/" if folder else "", prefix, start_after)

    def _is_folder(self, folder: str) -> bool:
        try:
            return self.path(f"{folder}/_").parent.is_dir()
        except Invalid:  # the private folder, or a symbolic link
            return False

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[str]:
        """`folder` is the beginning of a key: empty, or with a slash at its end."""
        for name in self._names(folder):
            key = folder + name
            if not name.endswith("/"):
                if key.startswith(prefix) and key > start_after:
                    yield key
            elif (key.startswith(prefix) or prefix.startswith(key)) and (
                key > start_after or start_after.startswith(key)
            ):
                yield from self._walk(key, prefix, start_after)

    def _names(self, folder: str) -> list[str]:
        """The names in `folder`, those of folders with a slash at the end, so that they sort as the keys in them."""
        try:
            with os.scandir(self.root / folder) as entries:
                names = [
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if not entry.is_symlink() and (folder or entry.name != PRIVATE_FOLDER)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if _can_be_key(name))


def _can_be_key(name: str) -> bool:
    """False for a foreign file whose name no key can have. A listing skips it."""
    try:
        return bool(checked_key(name.removesuffix("/")))
    except Invalid:
        return False


_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_KEY = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EEXIST}  # EEXIST: a file where a folder is needed


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn an `OSError` in the block into an error of Tidelog. `what` is the key or path that it is about."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise Unavailable(f"the disk is full ({reason}) at {what}: free some space, or raise the quota") from error
        if error.errno in _FORBIDDEN:
            raise Denied(f"this process may not touch {what} ({reason}): check owner and permissions") from error
        if error.errno in _NO_KEY:
            raise Invalid(f"{what!r} cannot be a file here: {reason}", field="key") from error
        raise Unavailable(f"the directory did not answer at {what}: {reason}") from error
