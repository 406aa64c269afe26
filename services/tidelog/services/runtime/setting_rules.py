"""What each setting means and which values it may have: the one table behind flags, files, variables and
``docs/settings.md``.

A setting's type and default stand in `settings.Settings`; its kind follows from its name, whose unit comes last:
``*.bytes`` is a size (``8MiB`` or a number), ``*.ms`` a duration (``250ms``, ``30s`` or a number of milliseconds).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import cast, get_type_hints

from tidelog.coordinator.topics.topic import PARTITIONS_MAX
from tidelog.services.runtime.settings import MIB, Settings
from tidelog.storage.errors import Invalid
from tidelog.storage.floor_trust import GRACE_S_MIN

Value = str | int | bool | None

AUTO = "auto"
"""Leaves an interval to the store's own default."""

KIB, GIB, TIB = 1 << 10, 1 << 30, 1 << 40
SECRET_SET = "(set)"  # noqa: S105  # what is shown of one, not one
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
_SIZE_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_TIME_UNITS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": HOUR_MS, "d": DAY_MS}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Rule:
    """`group` is the heading it stands under; `low` and `high` bound a number, `choices` a word; the value of a
    `secret` is never shown."""

    group: str
    meaning: str
    low: int = 0
    high: int = TIB
    choices: tuple[str, ...] = ()
    secret: bool = False


@dataclass(frozen=True)
class Setting:
    """One setting by its dotted name. `kind` is one of text, switch, count, size, duration."""

    name: str
    field: str
    kind: str
    default: Value
    optional: bool
    rule: Rule

    @property
    def flag(self) -> str:
        return "--" + self.name.replace(".", "-")

    @property
    def variable(self) -> str:
        return "TIDELOG_" + self.field.upper()

    def parsed(self, value: object) -> Value:
        """`value` (text, or what TOML gives) with this setting's type and in its range, else `Invalid`, which does not
        name the source: the caller knows it."""
        if self.optional and value == AUTO:
            return None
        if self.kind == "switch":
            return _switch(self.name, value)
        if self.kind == "text":
            return self._text(value)
        number = measured(self.name, self.kind, value)
        if not self.rule.low <= number <= self.rule.high:
            raise Invalid(
                f"{self.name} is {self.shown(self.rule.low)} to {self.shown(self.rule.high)}, not {value}",
                field=self.name,
            )
        return number

    def public(self, value: Value) -> Value:
        """`value`, or of a secret only that there is one."""
        return SECRET_SET if self.rule.secret and value is not None else value

    def shown(self, value: Value) -> str:
        """`value` as one would write it: the largest unit that divides it."""
        if value is None:
            return AUTO
        if self.rule.secret:
            return SECRET_SET
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.kind == "size" and isinstance(value, int):
            return _in_units(value, (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)))
        if self.kind == "duration" and isinstance(value, int):
            return _in_units(value, (("d", DAY_MS), ("h", HOUR_MS), ("m", 60_000), ("s", 1_000), ("ms", 1)))
        return str(value)

    def _text(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise Invalid(f"{self.name} is text, not {value!r}", field=self.name)
        if self.rule.choices and value not in self.rule.choices:
            raise Invalid(f"{self.name} is one of {' | '.join(self.rule.choices)}, not {value!r}", field=self.name)
        return value


def measured(name: str, kind: str, value: object) -> int:
    """`value` as a number of bytes (kind size), of ms (duration) or of things (count). Raises `Invalid`."""
    units = {"size": _SIZE_UNITS, "duration": _TIME_UNITS}.get(kind, {"": 1})
    found = None if isinstance(value, bool) else re.fullmatch(r"(-?\d{1,18})\s*([a-zA-Z]*)", str(value).strip())
    if not found or found.group(2).lower() not in units:
        wanted = {"size": "a size as 8MiB or 8388608", "duration": "a duration as 30s or 30000 (ms)"}
        raise Invalid(f"{name} is {wanted.get(kind, 'a whole number')}, not {value!r}", field=name)
    return int(found.group(1)) * units[found.group(2).lower()]


RULES: Mapping[str, Rule] = {
    "store": Rule("Store", "where the log lives: memory:, file:PATH or s3://BUCKET/PREFIX"),
    "store_request_timeout_ms": Rule(
        "Store",
        "how long S3 may take for a request, and a second more for each MiB of its body; then it is sent again",
        low=100,
        high=60_000,
    ),
    "store_connect_timeout_ms": Rule("Store", "how long a connection to S3 may take to open", low=100, high=60_000),
    "store_hedge_ms": Rule(
        "Store",
        "a read or commit that S3 takes longer for is sent a second time beside the first; 0 is never",
        high=60_000,
    ),
    "host": Rule("Network", "the address to listen on"),
    "port": Rule("Network", "the port to listen on; 0 takes a free one", high=65_535),
    "log_level": Rule("Logging", "the least severe lines to log", choices=("debug", "info", "warning", "error")),
    "log_format": Rule("Logging", "auto is text on a terminal, else JSON", choices=("auto", "text", "json")),
    "shards": Rule("Topics", "write-ahead logs of a new bucket", low=1, high=1_024),
    "num_partitions": Rule("Topics", "partitions of a topic that does not say", low=1, high=100_000),
    "auto_create_topics_enable": Rule("Topics", "create a topic when it is first produced to"),
    "topics_max": Rule("Topics", "topics; one more is refused", low=1, high=1_000_000),
    "topic_partitions_max": Rule("Topics", "partitions of one topic", low=1, high=PARTITIONS_MAX),
    "partitions_max": Rule("Topics", "partitions of all topics together", low=1, high=10_000_000),
    "flush_interval_ms": Rule(
        "Write path", "between PUT starts of a busy shard; auto is 250 on S3 and 0 on a local store", high=60_000
    ),
    "flush_max_bytes": Rule("Write path", "a batch this large is flushed at once", low=64 * KIB, high=GIB),
    "buffer_max_bytes": Rule("Write path", "records waiting for their commit; beyond it, 503", low=MIB),
    "cache_max_bytes": Rule("Read path", "recent records kept in memory for readers", low=0),
    "acks1_loss_max_ms": Rule(
        "Write path",
        "how much of what was acknowledged with acks=1 a crash may lose: once the oldest uncommitted record of a shard "
        "is so old, acks=1 waits for the store; auto is 750 more than flush.interval.ms",
        high=HOUR_MS,
    ),
    "commit_timeout_ms": Rule(
        "Write path", "how long a produce waits for its commit before 503", low=100, high=HOUR_MS
    ),
    "request_max_bytes": Rule("Requests", "of one body, after decompression; beyond it, 413", low=KIB, high=GIB),
    "request_max_records": Rule("Requests", "records in one body", low=1, high=100_000_000),
    "request_head_timeout_ms": Rule(
        "Requests", "how long the head of a request may take to arrive", low=100, high=HOUR_MS
    ),
    "request_read_timeout_ms": Rule("Requests", "how long a body may take to arrive", low=100, high=HOUR_MS),
    "fetch_max_bytes": Rule("Read path", "about the largest answer to one fetch", low=KIB, high=GIB),
    "fetch_max_records": Rule("Read path", "records in one answer", low=1, high=100_000_000),
    "fetch_max_wait_ms": Rule("Read path", "the longest a fetch may wait for records", high=HOUR_MS),
    "fetch_cold_concurrency": Rule("Read path", "reads of cold segments at once", low=1, high=1_024),
    "producer_id_expiration_ms": Rule(
        "Requests",
        "an idempotent producer that was silent for longer is forgotten; a batch that it sends again then is appended "
        "again",
        low=60_000,
        high=365 * DAY_MS,
    ),
    "producer_ids_max": Rule(
        "Requests", "idempotent producers that are remembered, counted in each partition", low=1, high=10_000_000
    ),
    "key_max_bytes": Rule("Requests", "of a record's key", low=1, high=GIB),
    "connections_max": Rule(
        "Network",
        "connections at once, of which nine tenths may wait for records; beyond it, 503",
        low=1,
        high=1_000_000,
    ),
    "http_hosts_allowed": Rule(
        "Network",
        "names that a request's Host may have besides localhost, IP addresses and the advertised address; several with "
        "commas, `*.example.com` for all names below one, `*` for any; auto is none",
    ),
    "http_origins_allowed": Rule(
        "Network",
        "web pages that may call this broker, by origin as https://console.example.com; several with commas; auto is "
        "none",
    ),
    "archiver_interval_ms": Rule(
        "Archive",
        "a write-ahead log older than this is archived; one of many partitions and few entries may be ten times as old",
        low=10,
        high=DAY_MS,
    ),
    "archiver_min_bytes": Rule(
        "Archive", "a write-ahead log larger than this is archived; under load one of four times that", low=1
    ),
    "archiver_batch_bytes": Rule("Archive", "raw records gathered in memory for one pass", low=KIB),
    "archiver_upkeep": Rule(
        "Archive",
        "retention, merging, compaction by key, deletion and sweeps by this broker; false where a compactor does it",
    ),
    "archiver_bandwidth_bytes": Rule("Archive", "what upkeep reads and writes in a second; 0 is without a limit"),
    "archiver_memory_bytes": Rule("Archive", "raw records that one step of upkeep holds in memory", low=MIB),
    "archiver_spill_folder": Rule(
        "Archive", "folder for what compaction by key does not hold in memory; auto is the system's temporary one"
    ),
    "archiver_sweep_interval_ms": Rule(
        "Archive",
        "between two sweeps of the bucket for orphans, dead staging areas and unfinished uploads older than a day; "
        "0 is never",
        high=365 * DAY_MS,
    ),
    "delete_grace_ms": Rule(
        "Archive",
        "between what is no longer needed, as an archived WAL entry or a merged segment, and its deletion",
        low=int(GRACE_S_MIN * 1000),  # the commit protocol stands on it
        high=30 * DAY_MS,
    ),
    "shutdown_timeout_ms": Rule("Network", "how long a stop may take to flush and answer", low=100, high=HOUR_MS),
    "etcd_endpoints": Rule(
        "Cluster", "etcd's addresses, http://HOST:PORT, several with commas; auto is one broker alone"
    ),
    "etcd_username": Rule("Cluster", "for an etcd with authentication"),
    "etcd_password": Rule("Cluster", "of that user; better given by its variable than by a flag", secret=True),
    "etcd_ca_file": Rule("Cluster", "PEM file with the authority that signed etcd's certificates"),
    "etcd_cert_file": Rule("Cluster", "PEM file with this broker's certificate for etcd"),
    "etcd_key_file": Rule("Cluster", "PEM file with that certificate's key"),
    "etcd_timeout_ms": Rule("Cluster", "how long one call to etcd may take", low=100, high=60_000),
    "cluster_name": Rule("Cluster", "separates clusters that share an etcd"),
    "broker_id": Rule(
        "Cluster", "this broker's name; one that stays the same gets its shards back after a restart at once"
    ),
    "broker_zone": Rule("Cluster", "where this broker runs, told to clients"),
    "advertised_address": Rule(
        "Cluster", "http://HOST:PORT by which peers and clients reach this broker; auto is host and port"
    ),
    "lease_ttl_ms": Rule("Cluster", "a broker not heard of for this long loses its shards", low=1_000, high=60_000),
    "rebalance_delay_ms": Rule("Cluster", "how long a broker is up before it is given shards", high=600_000),
    "peer_secret": Rule(
        "Cluster",
        "by which brokers prove to each other that they are peers, 16 characters or more; several with commas, where "
        "the first one signs and all are accepted; auto is one that the cluster makes and keeps in etcd",
        secret=True,
    ),
    "forward_timeout_ms": Rule(
        "Cluster", "how long a request looks for the leader of its shard", low=100, high=HOUR_MS
    ),
}


def known_settings() -> Mapping[str, Setting]:
    """Every setting by its dotted name, in the order of `settings.Settings`."""
    hints = get_type_hints(Settings)
    return {
        field.name.replace("_", "."): _setting(field.name, cast(Value, field.default), hints[field.name])
        for field in fields(Settings)
    }


def _setting(field: str, default: Value, hint: object) -> Setting:
    name = field.replace("_", ".")
    optional = hint in (int | None, str | None)
    if hint is bool:
        kind = "switch"
    elif hint in (str, str | None):
        kind = "text"
    else:
        kind = {"bytes": "size", "ms": "duration"}.get(name.rsplit(".", 1)[-1], "count")
    return Setting(name, field, kind, default, optional, RULES[field])


def _switch(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise Invalid(f"{name} is true or false, not {value!r}", field=name)
    return text in _TRUE


def _in_units(value: int, units: tuple[tuple[str, int], ...]) -> str:
    for unit, size in units:
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)
