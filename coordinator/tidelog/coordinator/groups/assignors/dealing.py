"""Choose partitions after their numbers: which ones each member gives up, and who gets those without an owner."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.coordinator.groups.assignors.assignment import Partition


@dataclass(frozen=True)
class Zones:
    """`racks`: of the members by number. `leaders`: the zone of each partition's leader, by topic."""

    racks: tuple[str, ...]
    leaders: Mapping[str, Sequence[str]]

    def of(self, partition: Partition) -> str:
        """Empty if it is not known."""
        zones = self.leaders.get(partition.topic, ())
        return zones[partition.number] if partition.number < len(zones) else ""

    def near(self, member: int, partition: Partition) -> bool:
        rack = self.racks[member]
        return bool(rack) and self.of(partition) == rack


def choose_partitions(
    partitions: Sequence[Partition],
    held: Mapping[int, set[Partition]],
    shares: Mapping[int, int],
    zones: Zones,
    chosen: list[list[Partition]],
) -> None:
    """Add to `chosen`, for each member in `shares`, that many of `partitions`: as many as possible of those that it has
    `held`, and near ones rather than far ones."""
    owned: set[Partition] = set()
    wanted: dict[int, int] = {}
    for member, share in shares.items():
        kept = _keep(held.get(member, set()), share, member, zones)
        owned.update(kept)
        chosen[member] += kept
        if len(kept) < share:
            wanted[member] = share - len(kept)
    _deal([partition for partition in partitions if partition not in owned], wanted, zones, chosen)


def _keep(mine: set[Partition], count: int, member: int, zones: Zones) -> list[Partition]:
    if len(mine) <= count:
        return list(mine)
    return sorted(mine, key=lambda partition: (not zones.near(member, partition), partition))[:count]


def _deal(free: list[Partition], wanted: dict[int, int], zones: Zones, chosen: list[list[Partition]]) -> None:
    """Give `free` to the members that want some, one each in turn, so that a topic is spread; first those that are near
    one of them."""
    near: dict[str, deque[int]] = {}
    for member in wanted:
        if zones.racks[member]:
            near.setdefault(zones.racks[member], deque()).append(member)
    left = [p for p in free if not _give(p, near.get(zones.of(p)), wanted, chosen)] if near else free
    turn = deque(member for member, count in wanted.items() if count)
    for partition in left:
        _give(partition, turn, wanted, chosen)


def _give(partition: Partition, turn: deque[int] | None, wanted: dict[int, int], chosen: list[list[Partition]]) -> bool:
    if not turn:
        return False
    member = turn.popleft()
    chosen[member].append(partition)
    wanted[member] -= 1
    if wanted[member]:
        turn.append(member)
    return True
