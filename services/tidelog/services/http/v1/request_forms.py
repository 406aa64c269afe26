"""The JSON bodies of requests that change a topic or the cluster. OpenAPI is made from these types, too:
`extra_json_schema` states bounds there that the broker itself checks."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tidelog.coordinator.topics.topic import PARTITIONS_MAX
from tidelog.services.http.v1.parameters import OFFSET_MAX

TOPIC_NAME_MAX = 249
Partitions: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
Configs: TypeAlias = dict[str, str | int | None]
_NAME_BOUNDS = msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": TOPIC_NAME_MAX})


class CreateForm(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create. Without `partitions` it has ``num.partitions``."""

    name: Annotated[str, _NAME_BOUNDS]
    partitions: Partitions | None = None
    configs: Configs = {}


class AlterForm(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a topic. A config that is null gets its default again; `partitions` may only grow."""

    partitions: Partitions | None = None
    configs: Configs = {}


class FeatureLevelForm(msgspec.Struct, forbid_unknown_fields=True):
    """The feature level that writers may use from now on."""

    level: Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class DeleteRecordsForm(msgspec.Struct, forbid_unknown_fields=True):
    """Records below `before_offset` are deleted; -1: all that are committed now."""

    before_offset: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)]
