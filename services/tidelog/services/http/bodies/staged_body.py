"""A produce whose records are in the bucket: its body names a part of a staged object (`tidelog.wire.staging`).

The part is checked and decoded as if the client had sent it. Its bytes count in the memory for bodies before they are
read.
"""

from __future__ import annotations

import re
import zlib

import msgspec

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.api.staging import StagedRef, Staging
from tidelog.services.http.bodies.body_reading import LIMIT_NAME, InFlightBody
from tidelog.services.http.bodies.typed_json import parse_typed
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.object_store import Body, ByteRange
from tidelog.wire.staging import BATCH_MAX, OBJECT_NAME, SINK_NAME, StagedRecords

_DECODER = msgspec.json.Decoder(StagedRecords)
_SINK = re.compile(SINK_NAME)
_NAME = re.compile(OBJECT_NAME)


def checked_sink(sink: str) -> str:
    """Raises `Invalid`."""
    if not _SINK.fullmatch(sink):
        raise Invalid(f"{sink[:80]!r} is not the name of a sink: 1 to 100 of A-Z a-z 0-9 _ -", field="sink")
    return sink


def checked_ref(sink: str, batch: int, name: str) -> StagedRef:
    """The object of that name, which lies in the area of the sink. Raises `Invalid`."""
    if not 0 <= batch <= BATCH_MAX:
        raise Invalid(f"the number of a batch is from 0 to {BATCH_MAX}, not {batch}", field="batch")
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is not the name of a staged object: 1 to 100 of a-z 0-9 -", field="name")
    return StagedRef(checked_sink(sink), batch, name)


async def read_staged(
    staging: Staging, context: RequestContext, body: Body, held: InFlightBody
) -> tuple[StagedRecords, Body]:
    """What `body` says, and the part of the object that it names. Raises `Invalid`, `TooLarge`, `Overloaded`,
    `NotFound`, `Unavailable`."""
    staged = parse_typed(_DECODER, body)
    ref = checked_ref(staged.sink, staged.batch, staged.name)
    if staged.length > held.limit_bytes:
        raise TooLarge(
            f"the staged records have {staged.length} bytes: stage smaller parts, or raise {LIMIT_NAME}",
            limit_name=LIMIT_NAME,
            limit_bytes=held.limit_bytes,
        )
    held.grow(staged.length)
    records = await staging.read(context, ref, ByteRange(staged.start, staged.length))
    if len(records) != staged.length or zlib.crc32(records) != staged.checksum:
        raise Invalid(
            f"bytes {staged.start} to {staged.start + staged.length} of {staged.name} are not those that were staged",
            field="checksum",
        )
    return staged, records


def check_count(staged: StagedRecords, count: int) -> None:
    """Raises `Invalid` if a part with `count` records is not the one that was staged."""
    if count != staged.records:
        raise Invalid(f"the part of {staged.name} has {count} records, not {staged.records}", field="records")
