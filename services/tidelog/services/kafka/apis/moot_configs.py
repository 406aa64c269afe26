"""Configs of Kafka's topics that change nothing here, for example of its replicas and of the files of its log.

A client may set them, because programs that were written for Kafka do, and they are not stored. Their values are
checked as Kafka checks them, so that a mistake is told here as it would be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tidelog.storage.errors import Invalid

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1


class Type(IntEnum):
    """The type of a config's value (ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True)
class MootConfig:
    """A config without effect. `rule`: what its value is, in words; `accepts`: whether a text is such a value."""

    type: Type
    default: str
    rule: str
    accepts: Callable[[str], bool]


def check_moot(name: str, value: str | None) -> None:
    """Raises `Invalid` for a value that Kafka refuses. None stands for the default."""
    config = WITHOUT_EFFECT[name]
    if value is not None and not config.accepts(value.strip()):
        raise Invalid(f"{name} is {config.rule}, not {value[:80]!r}", field=name)


def _number(kind: Type, default: int, low: int, high: int, also: int | None = None) -> MootConfig:
    """`also`: a value outside the bounds that is accepted, too."""

    def accepts(text: str) -> bool:
        try:
            return low <= int(text) <= high or int(text) == also
        except ValueError:
            return False

    return MootConfig(kind, str(default), f"a number from {low} to {high}" + (f" or {also}" if also else ""), accepts)


def _switch(*, may_be_on: bool = True) -> MootConfig:
    values = ("false", "true") if may_be_on else ("false",)
    return MootConfig(Type.BOOLEAN, "false", " or ".join(values), lambda text: text.lower() in values)


def _choice(default: str, *values: str) -> MootConfig:
    return MootConfig(Type.STRING, default, f"one of {', '.join(values)}", lambda text: text in values)


def _replicas() -> MootConfig:
    def accepts(text: str) -> bool:
        pairs = (part.split(":") for part in text.split(","))
        return text in {"", "*"} or all(len(pair) == 2 and all(map(str.isdecimal, pair)) for pair in pairs)

    return MootConfig(Type.LIST, "", "'*' or a list of PARTITION:BROKER", accepts)


WITHOUT_EFFECT: Mapping[str, MootConfig] = {
    "compression.gzip.level": _number(Type.INT, -1, 1, 9, also=-1),
    "compression.lz4.level": _number(Type.INT, 9, 1, 17),
    "compression.type": _choice("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _number(Type.INT, 3, -131072, 22),
    "flush.messages": _number(Type.LONG, INT64_MAX, 1, INT64_MAX),
    "flush.ms": _number(Type.LONG, INT64_MAX, 0, INT64_MAX),
    "follower.replication.throttled.replicas": _replicas(),
    "index.interval.bytes": _number(Type.INT, 4096, 0, INT32_MAX),
    "leader.replication.throttled.replicas": _replicas(),
    "local.retention.bytes": _number(Type.LONG, -2, -2, INT64_MAX),
    "local.retention.ms": _number(Type.LONG, -2, -2, INT64_MAX),
    "message.timestamp.after.max.ms": _number(Type.LONG, 3_600_000, 0, INT64_MAX),
    "message.timestamp.before.max.ms": _number(Type.LONG, INT64_MAX, 0, INT64_MAX),
    "min.insync.replicas": _number(Type.INT, 1, 1, INT32_MAX),
    "preallocate": _switch(),
    "remote.log.copy.disable": _switch(),
    "remote.log.delete.on.disable": _switch(),
    "remote.storage.enable": _switch(may_be_on=False),
    "segment.index.bytes": _number(Type.INT, 10_485_760, 4, INT32_MAX),
    "segment.jitter.ms": _number(Type.LONG, 0, 0, INT64_MAX),
    "unclean.leader.election.enable": _switch(),
}
"""By name. Kafka, too, refuses `remote.storage.enable` where tiered storage is off."""
