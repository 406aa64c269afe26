"""Decides which broker should lead which shard: rendezvous hashing with bounded loads and the fewest moves.

`assign` is a pure function of what every broker reads in the key-value store: the shards, the brokers that may lead,
and the current leaders. So all brokers compute the same answer, and no controller is elected.

- **Bounds.** Every broker gets ``floor(shards / brokers)`` shards or one more.
- **Fewest moves.** A shard moves only if its leader is gone or has too many shards, or another broker has too few. No
  assignment within the bounds moves fewer shards.
- **Rendezvous.** Of the shards that move and the brokers with room, the pairs with the highest score are assigned
  first. A score is a hash of the pair, so it is the same in every process and for any order of the inputs. If no shard
  has a leader yet, this is rendezvous hashing with a bound.

The current leaders are an input because a function of the brokers alone cannot keep both bounds and moves low
(`docs/adr/0007`).

If brokers see different states for a moment, their answers may differ. This costs at most a move: a transaction takes a
shard, and each move brings the loads nearer to the bounds, so moving ends.

Scores: splitmix64's finaliser (Steele, Lea, Flood 2014) over the shard's number and BLAKE2b of the broker's id.
Rendezvous hashing: Thaler and Ravishankar 1998. Bounded loads: Mirrokni, Thorup, Zadimoghaddam 2018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint64]

_NOBODY = -1
_SCORES_AT_ONCE = 1 << 16
"""Scores computed at a time, so that they fit in the processor's cache."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NONE: Mapping[int, str] = MappingProxyType({})


def assign(shards: Sequence[int], brokers: Sequence[str], leaders: Mapping[int, str] = _NONE) -> Mapping[int, str]:
    """The broker that should lead each of `shards`, given the current `leaders`; empty if there are no `brokers`. A
    leader that is not among `brokers` counts as gone."""
    names = sorted(set(brokers))
    numbers = sorted(set(shards))
    if not names or not numbers:
        return {}
    index = {name: place for place, name in enumerate(names)}
    owners = [index.get(leaders.get(number, ""), _NOBODY) for number in numbers]
    assignment = _Assignment(np.array(numbers, dtype=np.uint64), names, np.array(owners, dtype=np.int64))
    assignment.settle()
    return {number: names[owner] for number, owner in zip(numbers, assignment.owners.tolist(), strict=True)}


class _Assignment:
    """Shards and brokers by their index in the sorted inputs; `owners` holds a broker or `_NOBODY` for each shard."""

    def __init__(self, numbers: _Hashes, names: Sequence[str], owners: _Ints) -> None:
        self.owners = owners
        self._loads = np.bincount(owners[owners != _NOBODY], minlength=len(names)).astype(np.int64)
        self._shard_keys = _mixed(numbers * _GOLDEN + _GOLDEN)
        self._broker_keys = np.array([_broker_key(name) for name in names], dtype=np.uint64)

    def settle(self) -> None:
        """Bring all loads within the bounds. Brokers below the floor are filled first, so that a necessary move also
        relieves a broker above the ceiling; this order of the steps gives the fewest moves."""
        floor = len(self.owners) // len(self._loads)
        ceiling = -(-len(self.owners) // len(self._loads))
        self._place_free(floor)
        self._relieve(above=ceiling, up_to=floor)
        self._relieve(above=floor, up_to=floor)
        self._place_free(ceiling)
        self._relieve(above=ceiling, up_to=ceiling)

    def _place_free(self, up_to: int) -> None:
        """Assign shards without an owner to brokers below `up_to`."""
        free = np.flatnonzero(self.owners == _NOBODY)
        while len(free) and (self._loads < up_to).any():
            best, scores = self._best(free, np.flatnonzero(self._loads < up_to))
            taken = _foremost(best, scores, up_to - self._loads)
            self.owners[free[taken]] = best[taken]
            self._loads += np.bincount(best[taken], minlength=len(self._loads))
            free = np.delete(free, taken)

    def _relieve(self, above: int, up_to: int) -> None:
        """Move shards from brokers that have more than `above` to those below `up_to`."""
        while (self._loads > above).any() and (self._loads < up_to).any():
            held = np.flatnonzero(self.owners != _NOBODY)
            movable = held[self._loads[self.owners[held]] > above]
            best, scores = self._best(movable, np.flatnonzero(self._loads < up_to))
            wanted = _foremost(best, scores, up_to - self._loads)
            givers = self.owners[movable[wanted]]
            given = wanted[_foremost(givers, scores[wanted], self._loads - above)]
            self._loads -= np.bincount(self.owners[movable[given]], minlength=len(self._loads))
            self._loads += np.bincount(best[given], minlength=len(self._loads))
            self.owners[movable[given]] = best[given]

    def _best(self, shards: _Ints, brokers: _Ints) -> tuple[_Ints, _Hashes]:
        """For each of `shards`, the one of `brokers` with the highest score, and that score."""
        keys, best, scores = self._broker_keys[brokers], [], []
        step = max(1, _SCORES_AT_ONCE // len(brokers))
        for first in range(0, len(shards), step):
            table = _mixed(self._shard_keys[shards[first : first + step], None] ^ keys)
            columns = table.argmax(axis=1)
            best.append(columns)
            scores.append(table[np.arange(len(columns)), columns])
        return brokers[np.concatenate(best)], np.concatenate(scores)


def _foremost(groups: _Ints, scores: _Hashes, room: _Ints) -> _Ints:
    """The indexes of the entries whose score is among the `room[group]` highest of their group."""
    order = np.lexsort((~scores, groups))
    in_order = groups[order]
    rank = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    return order[rank < room[in_order]]


def _mixed(values: _Hashes) -> _Hashes:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@lru_cache(maxsize=4_096)
def _broker_key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
