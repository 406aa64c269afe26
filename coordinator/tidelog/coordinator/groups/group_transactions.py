"""Cuts the changes of groups into transactions that etcd accepts.

The changes of one group are in one transaction if they fit. If they do not, they become a `redo_record` first, so they
are atomic in either case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.redo_record import completed, cut_by, recorded, size_of
from tidelog.coordinator.groups.stored import group_of

OPERATIONS_MAX = 128
"""etcd's default ``--max-txn-ops``."""
ROOM = OPERATIONS_MAX - 1
"""The changes in a transaction: each one also writes `group_writes`."""
TRANSACTION_BYTES_MAX = 1_000_000
"""Keys and values of a transaction. etcd's default ``--max-request-bytes`` is 1.5 MiB."""


def cut(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """`changes` in transactions, to be applied in this order; each key once in a transaction."""
    batch: list[Change] = []
    batch_bytes = 0
    for piece in _by_group(changes):
        piece_bytes = sum(map(size_of, piece))
        if batch and (len(batch) + len(piece) > ROOM or batch_bytes + piece_bytes > TRANSACTION_BYTES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch += piece
        batch_bytes += piece_bytes
    if batch:
        yield batch


def in_pieces(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """`changes`, each of another key, in their order, in pieces that fit into a transaction."""
    return cut_by(changes, ROOM, TRANSACTION_BYTES_MAX)


def _by_group(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """The changes of each group, the last one of each key; with a record, in several pieces, if they do not fit."""
    groups: dict[str, dict[str, Change]] = {}
    for change in changes:
        groups.setdefault(group_of(change.key), {})[change.key] = change
    for group, by_key in groups.items():
        own = list(by_key.values())
        if len(own) <= ROOM and sum(map(size_of, own)) <= TRANSACTION_BYTES_MAX:
            yield own
        else:
            yield from in_pieces(recorded(group, own))
            yield from in_pieces(completed(group, own))
