"""Decide how many partitions of each pool every member gets: the least sum of squared loads, then the fewest moves.

A pool is the set of topics that have the same subscribers. With one pool the answer is arithmetic (`_shares`). With
several it is a flow of least cost from pools to members, found in three steps:

1. Every member keeps all it holds; partitions without an owner go to the least loaded subscriber.
2. While a chain of moves leads from a member to one with two partitions fewer, make the shortest such chain. Without
   any such chain the sum of squares is the least possible (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite
   graphs and load balancing).
3. While a cycle of moves with a negative cost exists, make it. Its cost is the number of partitions that leave their
   owners less that of those that return; two members whose loads differ by one may change places at no cost. Without
   any such cycle the number of moves is the least possible.

Bound: steps 2 and 3 stop after `WORK_MAX` visited edges. Beyond it, loads are still even among members of equal
subscription (each direct move is made), but the sum of squares and the number of moves may be above the least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidelog.coordinator.groups.assignors.move_cycles import cancel_move_cycles

Counts = npt.NDArray[np.int32]
"""How many partitions, by pool and member."""

WORK_MAX = 30_000_000
"""Edges between pools and members that may be visited, which takes about a second."""


@dataclass(frozen=True)
class Pools:
    """`sizes`: partitions of each pool. `subscribed`: whether a member may get partitions of a pool."""

    sizes: npt.NDArray[np.int64]
    subscribed: npt.NDArray[np.bool_]
    held: Counts


def balanced_counts(pools: Pools) -> Counts:
    """How many partitions of each pool every member gets."""
    if len(pools.sizes) == 1:
        return _shares(pools)
    counts = _filled(pools)
    work = _Balancing(pools, counts, WORK_MAX).run()
    cancel_move_cycles(pools.subscribed, pools.held, counts, work)
    return counts


def _shares(pools: Pools) -> Counts:
    """Equal shares; the members that hold most get the partitions that are left over."""
    counts = np.zeros_like(pools.held)
    members = np.flatnonzero(pools.subscribed[0])
    share, left_over = divmod(int(pools.sizes[0]), len(members))
    counts[0, members] = share
    held_more = pools.held[0, members] > share
    counts[0, members[np.argsort(~held_more, kind="stable")[:left_over]]] += 1
    return counts


def _filled(pools: Pools) -> Counts:
    """All that is held, and the rest at the least loaded subscribers; pools with few subscribers first."""
    counts = pools.held.copy()
    loads = counts.sum(axis=0)
    for pool in np.argsort(pools.subscribed.sum(axis=1), kind="stable"):
        members = np.flatnonzero(pools.subscribed[pool])
        for _ in range(int(pools.sizes[pool] - counts[pool].sum())):
            member = members[loads[members].argmin()]
            counts[pool, member] += 1
            loads[member] += 1
    return counts


class _Balancing:
    """Step 2. Members are taken from the most loaded down. If no chain leads from one, then all that it can reach have
    their final loads, and no later chain touches them."""

    def __init__(self, pools: Pools, counts: Counts, work: int) -> None:
        self._subscribed = pools.subscribed
        self._held = pools.held
        self._counts = counts
        self._loads = counts.sum(axis=0)
        self._open = np.ones(counts.shape[1], np.bool_)
        self._work = work

    def run(self) -> int:
        """Change the counts; returns the work that is left."""
        while self._open.any():
            self._relieve(int(np.where(self._open, self._loads, -1).argmax()))
        return self._work

    def _relieve(self, source: int) -> None:
        """Make the shortest chain of moves from `source`; without one, close all members that it reaches. Without work
        left, only direct moves are looked for, and nothing is known of other members."""
        pool_from: dict[int, int] = {}
        member_from: dict[int, int] = {source: -1}
        frontier = [source]
        while frontier:
            reached: list[int] = []
            for member in frontier:
                for pool in self._pools_of(member):
                    if pool in pool_from:
                        continue
                    pool_from[pool] = member
                    target = self._least_loaded(pool)
                    if self._loads[target] <= self._loads[source] - 2:
                        self._move_along(pool_from, member_from, pool, target)
                        return
                    new = [m for m in np.flatnonzero(self._subscribed[pool]).tolist() if m not in member_from]
                    member_from.update(dict.fromkeys(new, pool))
                    reached += new
            frontier = reached if self._work > 0 else []
        self._open[list(member_from) if self._work > 0 else [source]] = False

    def _pools_of(self, member: int) -> list[int]:
        """The pools that `member` has partitions of; first those of which it has some that it did not hold."""
        mine, held = self._counts[:, member], self._held[:, member]
        self._work -= len(mine)
        pools = np.flatnonzero(mine)
        result: list[int] = pools[np.argsort(mine[pools] <= held[pools], kind="stable")].tolist()
        return result

    def _least_loaded(self, pool: int) -> int:
        self._work -= len(self._loads)
        return int(np.where(self._subscribed[pool], self._loads, np.iinfo(np.int64).max).argmin())

    def _move_along(self, pool_from: dict[int, int], member_from: dict[int, int], pool: int, target: int) -> None:
        self._loads[target] += 1
        while True:
            giver = pool_from[pool]
            self._counts[pool, target] += 1
            self._counts[pool, giver] -= 1
            target, pool = giver, member_from[giver]
            if pool < 0:
                break
        self._loads[target] -= 1
        if self._work <= 0:
            self._open |= self._loads > self._loads[target] + 1
