"""Damage that a person or a disk can do to an object of a bucket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.storage.object_store import ObjectStore

Harm = Callable[[ObjectStore, str], Awaitable[None]]


async def delete(store: ObjectStore, key: str) -> None:
    """Delete the object."""
    await store.delete(key)


async def flip(store: ObjectStore, key: str) -> None:
    """Change some of its bytes."""
    data = (await store.get(key)).data
    middle = len(data) // 2
    await store.put(key, data[: middle - 8] + bytes(b ^ 0xFF for b in data[middle - 8 : middle]) + data[middle:])


async def cut(store: ObjectStore, key: str) -> None:
    """Cut off its end."""
    await store.put(key, (await store.get(key)).data[:-30])
