"""Take back moves that balance does not need: cancel cycles of negative cost in the graph of possible changes.

The nodes are pools, members and levels. An edge is a change by one partition:

    member -> pool     the member gives up a partition of the pool: costs 1 if it held all that it has of it, else 0
    pool -> member     the member gets one: costs -1 if it has fewer than it held, else 0
    member -> level    a member with `level` - 1 partitions may get one more, if ...
    level -> member    ... a member with `level` partitions gives up one: the sum of squares stays

So a cycle is a set of changes that keeps every pool's size and the sum of squares. Its cost is the change in the number
of moves. Cycles of negative cost are found by Bellman and Ford's algorithm, all edges at once in numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Edges:
    source: Ints
    target: Ints
    cost: Ints
    pool: Ints
    """Of the edge's change, -1 for edges of levels."""
    member: Ints
    change: Ints
    """By how much the count of `pool` and `member` changes: 1 or -1."""


def cancel_move_cycles(
    subscribed: npt.NDArray[np.bool_], held: npt.NDArray[np.int32], counts: npt.NDArray[np.int32], work: int
) -> None:
    """Change `counts` until no change of equal balance has fewer moves, or until `work` edges have been visited."""
    while work > 0 and bool((counts < held).any()):
        edges = _edges(subscribed, held, counts)
        cycles, work = _negative_cycles(edges, sum(counts.shape) + int(counts.sum(axis=0).max()) + 2, work)
        if not cycles:
            return
        for cycle in cycles:
            changed = cycle[edges.pool[cycle] >= 0]
            np.add.at(counts, (edges.pool[changed], edges.member[changed]), edges.change[changed])


def _edges(subscribed: npt.NDArray[np.bool_], held: npt.NDArray[np.int32], counts: npt.NDArray[np.int32]) -> _Edges:
    pools, members = counts.shape
    loads = counts.sum(axis=0)
    levels = pools + members
    give_pool, give_member = np.nonzero(counts)
    get_pool, get_member = np.nonzero(subscribed)
    everyone = np.arange(members)
    none = np.full(2 * members, -1)
    return _Edges(
        np.concatenate([pools + give_member, get_pool, pools + everyone, levels + loads]),
        np.concatenate([give_pool, pools + get_member, levels + loads + 1, pools + everyone]),
        np.concatenate(
            [
                (counts <= held)[give_pool, give_member].astype(np.int64),
                -(counts < held)[get_pool, get_member].astype(np.int64),
                np.zeros(2 * members, np.int64),
            ]
        ),
        np.concatenate([give_pool, get_pool, none]),
        np.concatenate([give_member, get_member, none]),
        np.concatenate([np.full(len(give_pool), -1), np.ones(len(get_pool), np.int64), none]),
    )


def _negative_cycles(edges: _Edges, nodes: int, work: int) -> tuple[list[Ints], int]:
    """Disjoint cycles of negative cost, each as edges, and the work that is left."""
    distance = np.zeros(nodes, np.int64)
    arrived_by = np.full(nodes, -1, np.int64)
    while work > 0:
        work -= len(edges.source)
        offered = distance[edges.source] + edges.cost
        better = distance.copy()
        np.minimum.at(better, edges.target, offered)
        used = np.flatnonzero((offered == better[edges.target]) & (offered < distance[edges.target]))
        if not len(used):
            break
        arrived_by[edges.target[used]] = used
        distance = better
        cycles = [cycle for cycle in _cycles(edges, arrived_by.tolist()) if edges.cost[cycle].sum() < 0]
        if cycles:
            return cycles, work
    return [], work


def _cycles(edges: _Edges, arrived_by: list[int]) -> Iterator[Ints]:
    """The cycles that `arrived_by` forms: the edge by which each node was reached."""
    source: list[int] = edges.source.tolist()
    walk_of = [0] * len(arrived_by)
    for walk, start in enumerate(range(len(arrived_by)), start=1):
        node = start
        while not walk_of[node] and arrived_by[node] >= 0:
            walk_of[node] = walk
            node = source[arrived_by[node]]
        if walk_of[node] == walk and arrived_by[node] >= 0:
            yield _around(source, arrived_by, node)


def _around(source: list[int], arrived_by: list[int], start: int) -> Ints:
    cycle = [arrived_by[start]]
    node = source[cycle[0]]
    while node != start:
        cycle.append(arrived_by[node])
        node = source[cycle[-1]]
    return np.array(cycle)
