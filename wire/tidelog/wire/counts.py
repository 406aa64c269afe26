"""The number type of offsets, sizes and counts. Decoders check its bounds, and OpenAPI states them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
