"""Staged objects: records that a sink wrote to the bucket before they are appended to partitions.

A sink (a Spark query) writes objects under ``_staging/sink-<sink>/<batch>/``. A produce may then name a part of such an
object instead of carrying records: its body is a `StagedRecords` of the media type `STAGED_RECORDS_MEDIA`. The leader
reads that part, which is an Arrow stream as in any produce, and appends its records.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Meta

from tidelog.wire.counts import Count

STAGED_RECORDS_MEDIA = "application/vnd.tidelog.staged+json"
"""The Content-Type of a produce whose records are in the bucket."""
SINK_NAME = r"[A-Za-z0-9_-]{1,100}"
OBJECT_NAME = r"[a-z0-9-]{1,100}(\.arrow)?"
PLACE = r"[A-Za-z0-9./-]{1,200}"
"""A place within a sink, to list or delete from."""
SIZE_MAX = 2**62
BATCH_MAX = SIZE_MAX
PAGE_MAX = 1_000
Size: TypeAlias = Annotated[int, Meta(ge=0, le=SIZE_MAX)]


class StagedRecords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a produce whose records are `length` bytes from `start` of object `name` of a batch: an Arrow stream
    with `records` records and the CRC32 `checksum`. `age_ms`: how long ago an earlier attempt may have sent them first;
    the leader refuses them if it may have forgotten the producer since then."""

    sink: Annotated[str, Meta(pattern=f"^{SINK_NAME}$")]
    batch: Size
    name: Annotated[str, Meta(pattern=f"^{OBJECT_NAME}$")]
    start: Size
    length: Annotated[int, Meta(ge=1, le=SIZE_MAX)]
    checksum: Annotated[int, Meta(ge=0, lt=2**32)]
    records: Size
    age_ms: Size


class StagedObject(msgspec.Struct, frozen=True):
    """An object that a sink staged. `modified_ms` is the time by the store's clock, in ms since 1970 UTC."""

    batch: Count
    name: str
    size: Count
    modified_ms: int


class StagedPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The objects of a sink by batch and name. `next` is the value of `after` for the next page; None on the last."""

    objects: tuple[StagedObject, ...]
    next: str | None = None


class DeletedObjects(msgspec.Struct, frozen=True):
    """How many staged objects a call deleted."""

    deleted: Count


def staged_path(batch: int, name: str) -> str:
    """The place of an object within its sink. Places sort by batch, then by name."""
    return f"{batch:020d}/{name}"


_PATH = re.compile(rf"(\d{{20}})/({OBJECT_NAME})")


def batch_and_name(path: str) -> tuple[int, str] | None:
    """The inverse of `staged_path`; None for another text."""
    found = _PATH.fullmatch(path)
    return (int(found[1]), found[2]) if found else None


def sink_target(sink: str) -> str:
    """The encoded path of the calls on a sink."""
    return f"/v1/staging/{quote(sink, safe='')}"


def staged_target(sink: str, batch: int, name: str) -> str:
    """The encoded path of the calls on a staged object."""
    return f"{sink_target(sink)}/{batch}/{quote(name, safe='')}"
