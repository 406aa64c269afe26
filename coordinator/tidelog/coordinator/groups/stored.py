"""The keys of groups, and the values that every kind of group stores.

    heads/<group>                             StoredHead: that the group exists, and its kind
    parts/<group>/offsets/<topic>/<partition> StoredOffset
    parts/<group>/members/<member id>         the member, in the form of its kind of group
    parts/<group>/instances/<instance>        StoredInstance: what a front door keeps of a client
    redo/<group>, redo/<group>/<n>            changes that are being applied (`redo_record`), in etcd only

All of a group is under one prefix, so that a new coordinator reads it in one range; the heads are a list of the groups.
Names are percent-encoded. A `GroupStore` puts the keys under a prefix of the cluster of their own
(``/tidelog-groups/<cluster>/`` in etcd), which leadership does not watch.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

import msgspec

from tidelog.storage.errors import Corrupt

FORMAT_VERSION = 1
HEADS = "heads/"
PARTS = "parts/"
REDO = "redo/"
REMEMBERED = 20_000
"""Names of groups, topics and members whose encoding is kept in memory, because each commit needs it."""


class StoredHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """`kind`: ``consumer``, ``classic``, or empty for a group that has only offsets. `epoch`: of a consumer group, or
    the generation of a classic one. `assigned_epoch`: the epoch of the target assignment. `members`: how many are
    stored, of a classic group. `emptied_at_ms`: since when the group has no members, 0 while it has some."""

    kind: str = ""
    epoch: int = 0
    assigned_epoch: int = 0
    assignor: str = ""
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: int = 0
    emptied_at_ms: int = 0
    format_version: int = FORMAT_VERSION


def decoded_head(group: str, value: bytes) -> StoredHead:
    """The head of `group` from its stored `value`, in MessagePack as all values here. Raises `Corrupt`."""
    try:
        return msgspec.msgpack.decode(value, type=StoredHead)
    except msgspec.MsgspecError as error:
        raise Corrupt(head_key(group), f"it is no head of a group ({error})") from error


class StoredOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """A committed offset of the topic `topic_id`; a topic of another id under the same name is another topic."""

    topic_id: str
    offset: int
    at_ms: int
    leader_epoch: int = -1
    metadata: str = ""


class StoredInstance(msgspec.Struct, frozen=True):
    """See `wire.groups.WriteInstance`."""

    data: bytes
    version: int
    idle_timeout_ms: int


def head_key(group: str) -> str:
    return HEADS + _coded(group)


def parts_prefix(group: str) -> str:
    """Everything of `group` but its head."""
    return f"{PARTS}{_coded(group)}/"


def offsets_prefix(group: str) -> str:
    return f"{parts_prefix(group)}offsets/"


def offset_key(group: str, topic: str, partition: int) -> str:
    return f"{offsets_prefix(group)}{_coded(topic)}/{partition}"


def member_key(group: str, member_id: str) -> str:
    return f"{parts_prefix(group)}members/{_coded(member_id)}"


def instance_key(group: str, instance: str) -> str:
    return f"{parts_prefix(group)}instances/{_coded(instance)}"


def redo_key(group: str) -> str:
    return REDO + _coded(group)


def redo_part_key(group: str, number: int) -> str:
    return f"{redo_key(group)}/{number}"


def names_in(key: str, prefix: str) -> tuple[str, ...]:
    """The names that `key` has after `prefix`.

    >>> names_in(offset_key("a/b", "web", 3), parts_prefix("a/b"))
    ('offsets', 'web', '3')
    """
    return tuple(unquote(part) for part in key.removeprefix(prefix).split("/"))


def group_of(key: str) -> str:
    """The group that the head or part `key` belongs to.

    >>> group_of(offset_key("a/b", "web", 3)), group_of(head_key("a/b"))
    ('a/b', 'a/b')
    """
    return _decoded(key.split("/", 2)[1])


def is_offset(key: str) -> bool:
    return key.startswith(PARTS) and key.split("/", 3)[2] == "offsets"


def is_copied(key: str) -> bool:
    """Whether `key` is copied to the bucket: heads and offsets. Members join again after a recovery."""
    return key.startswith(HEADS) or is_offset(key)


@lru_cache(maxsize=REMEMBERED)
def _coded(name: str) -> str:
    return quote(name, safe="")


@lru_cache(maxsize=REMEMBERED)
def _decoded(name: str) -> str:
    return unquote(name)
