"""Offsets of a partition that are recorded as lost. All functions are pure.

`tidelog bucket repair` records a loss when an object with acknowledged records is missing or damaged for good. From
then on the log of the partition is complete except for its losses (inv. 5). A loss may lie beyond the cold end: the
archiver skips it when it gets there. Losses below the log start are dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.storage.manifests.json_envelope import Natural

LOSSES_MAX = 1_000
"""Of one partition. Neighbouring losses count as one."""


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Offsets ``[first_offset, next_offset)``, which the object `key` held, were recorded as lost at `at_ms`."""

    first_offset: Natural
    next_offset: Natural
    key: str
    at_ms: int


def with_losses(losses: Sequence[Loss], added: Sequence[Loss]) -> tuple[Loss, ...]:
    """Both together, ascending. Losses that touch or overlap become one, with the first object's key."""
    joined: list[Loss] = []
    for loss in sorted((*losses, *added), key=_first):
        if joined and loss.first_offset <= joined[-1].next_offset:
            joined[-1] = replace(joined[-1], next_offset=max(joined[-1].next_offset, loss.next_offset))
        else:
            joined.append(loss)
    return tuple(joined)


def from_log_start(losses: Sequence[Loss], log_start_offset: int) -> tuple[Loss, ...]:
    """The losses that do not lie wholly below the log start."""
    return tuple(loss for loss in losses if loss.next_offset > log_start_offset)


def loss_at(losses: Sequence[Loss], offset: int) -> Loss | None:
    """The loss that holds `offset`."""
    before = bisect_right(losses, offset, key=_first)
    return losses[before - 1] if before and offset < losses[before - 1].next_offset else None


def past_losses(losses: Sequence[Loss], offset: int) -> int:
    """The first offset from `offset` on that is not lost."""
    loss = loss_at(losses, offset)
    return loss.next_offset if loss else offset


def lost_between(losses: Sequence[Loss], first_offset: int, next_offset: int) -> int:
    """How many offsets of ``[first_offset, next_offset)`` are lost."""
    return sum(max(0, min(loss.next_offset, next_offset) - max(loss.first_offset, first_offset)) for loss in losses)


def not_lost(losses: Sequence[Loss], first_offset: int, next_offset: int) -> Iterator[tuple[int, int]]:
    """The stretches of ``[first_offset, next_offset)`` between losses, each with the offset after it."""
    while (first_offset := past_losses(losses, first_offset)) < next_offset:
        after = bisect_right(losses, first_offset, key=_first)
        end = min(losses[after].first_offset, next_offset) if after < len(losses) else next_offset
        yield first_offset, end
        first_offset = end


def losses_fault(losses: Sequence[Loss]) -> str | None:
    """Why these cannot be the losses of a partition; None if they can."""
    reached = -1
    for loss in losses:
        if not reached < loss.first_offset < loss.next_offset:
            return f"has a loss {loss.first_offset} to {loss.next_offset - 1} after offset {reached}"
        reached = loss.next_offset
    if len(losses) > LOSSES_MAX:
        return f"has {len(losses)} losses; the most is {LOSSES_MAX}"
    return None


def _first(loss: Loss) -> int:
    return loss.first_offset
