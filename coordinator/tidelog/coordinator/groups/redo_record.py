"""Makes the changes of one group atomic if they do not fit into one transaction of etcd.

    redo/<group>/<n>   a part of the record: changes, packed
    redo/<group>       the number of parts: the record is valid

    1  put the parts, then `redo/<group>`     from here on all changes count; before, none does
    2  apply the changes to their own keys    in as many transactions as it takes
    3  delete the record

A reader that finds a valid record applies it to what it has read (`redone`). If the leader dies, the next one completes
the record before it writes anything else, so no later change is hidden by the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.stored import group_of, redo_key, redo_part_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import Corrupt

PART_BYTES_MAX = 900_000
"""Keys and values in one part."""
_PARTS = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])
_COUNT = msgspec.msgpack.Decoder(int)


def size_of(change: Change) -> int:
    """Bytes of the key and the value."""
    return len(change.key) + (len(change.value) if isinstance(change, PutKey) else 0)


def cut_by(changes: Sequence[Change], count_max: int, bytes_max: int) -> Iterator[Sequence[Change]]:
    """`changes` in their order, in pieces within both bounds; a larger change is a piece of its own."""
    piece: list[Change] = []
    piece_bytes = 0
    for change in changes:
        if piece and (len(piece) == count_max or piece_bytes + size_of(change) > bytes_max):
            yield piece
            piece, piece_bytes = [], 0
        piece.append(change)
        piece_bytes += size_of(change)
    if piece:
        yield piece


def recorded(group: str, changes: Sequence[Change]) -> Sequence[Change]:
    """Step 1: the changes that write the record of `changes`, the last one `redo/<group>`."""
    parts = [_packed(part) for part in _parts_of(changes)]
    puts = [PutKey(redo_part_key(group, number), value) for number, value in enumerate(parts)]
    return [*puts, PutKey(redo_key(group), msgspec.msgpack.encode(len(parts)))]


def completed(group: str, changes: Sequence[Change]) -> Sequence[Change]:
    """Steps 2 and 3, for a record that was written as `recorded` says."""
    parts = [DeleteKey(redo_part_key(group, number)) for number, _ in enumerate(_parts_of(changes))]
    return [*changes, DeleteKey(redo_key(group)), *parts]


def read_records(items: Mapping[str, bytes], owns: Callable[[str], bool]) -> Mapping[str, Sequence[Change]]:
    """The changes of the valid records in `items`, by group, of those groups that `owns` accepts. Raises `Corrupt`."""
    groups = {group_of(key) for key in items}
    return {group: _read(group, items) for group in sorted(groups) if redo_key(group) in items and owns(group)}


def redone(keys: Mapping[str, bytes], changes: Sequence[Change]) -> dict[str, bytes]:
    """`keys` after `changes`."""
    state = dict(keys)
    for change in changes:
        if isinstance(change, PutKey):
            state[change.key] = change.value
        else:
            state.pop(change.key, None)
    return state


def _read(group: str, items: Mapping[str, bytes]) -> Sequence[Change]:
    key = redo_key(group)
    try:
        parts = [items[redo_part_key(group, number)] for number in range(_COUNT.decode(items[key]))]
        return [_change(name, value) for part in parts for name, value in _PARTS.decode(part)]
    except (msgspec.MsgspecError, KeyError) as error:
        raise Corrupt(key, f"the changes of the group that it announces cannot be read: {error}") from error


def _parts_of(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    return cut_by(changes, count_max=len(changes), bytes_max=PART_BYTES_MAX)


def _packed(changes: Sequence[Change]) -> bytes:
    return msgspec.msgpack.encode([(each.key, each.value if isinstance(each, PutKey) else None) for each in changes])


def _change(key: str, value: bytes | None) -> Change:
    return DeleteKey(key) if value is None else PutKey(key, value)
