"""The number type of offsets, sizes and counts. Decoders check its bound, and OpenAPI states it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
