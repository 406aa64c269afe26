"""The state of a `tidelog topic copy`: a checkpoint in a file, from which a later run continues.

At a checkpoint every record that was sent is acknowledged. It holds, for each partition of the source, the next offset
to read, and for each partition of the target, how many records this copy has put there. The copy is an idempotent
producer (inv. 7), so the target knows how many of its records it holds now. The difference are the records after the
checkpoint that need not be sent again. Both sides count the same records, because the order in which records go to a
partition of the target depends on the source alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tidelog.storage.errors import Corrupt, Invalid

Placement = Literal["keep", "by-key"]


class CopyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`positions`: the next offset of each partition of the source. `sequences`: the records of `producer_id` in each
    partition of the target. `settled`: nothing was sent after the checkpoint. `exact`: no record was refused."""

    source_id: str
    target_id: str
    target_partitions: int
    placement: Placement
    producer_id: str
    positions: dict[int, int]
    sequences: dict[int, int] = {}
    settled: bool = True
    exact: bool = True

    def same_copy(self, other: CopyState) -> bool:
        """Whether both copy between the same topics in the same way."""
        mine = (self.source_id, self.target_id, self.target_partitions, self.placement)
        return mine == (other.source_id, other.target_id, other.target_partitions, other.placement)


def held_since(state: CopyState, held: Mapping[int, int]) -> dict[int, int] | None:
    """How many records after the checkpoint each partition of the target holds; None if that is unknown, because the
    target has forgotten the copy or a record was refused."""
    since = {partition: count - state.sequences.get(partition, 0) for partition, count in held.items()}
    return since if state.exact and min(since.values(), default=0) >= 0 else None


def read_state(file: Path) -> CopyState | None:
    """The state in `file`; None if there is no file. Raises `Corrupt`, `Invalid`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=CopyState)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}", field="resume") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(str(file), f"is no state of a copy ({error})") from error


def write_state(file: Path, state: CopyState) -> None:
    """Replace `file` at once. Raises `Invalid`."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        beside.write_bytes(msgspec.json.encode(state))
        beside.replace(file)
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}", field="resume") from error
