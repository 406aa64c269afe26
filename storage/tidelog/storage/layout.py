"""The keys of all objects in a bucket. Only this module makes and parses keys.

wal/<shard:04d>/<seq:020d>.parquet
wal/<shard:04d>/_index/<first seq:020d>.parquet
topics/<topic>/<topic_id>/<shard:04d>-<id>.parquet             records of a topic in a shard, of any partitions
manifests/<shard:04d>/<version:020d>.json
manifests/<shard:04d>/lists/<topic_id>-<id>.json               a topic's segments and partitions (`topic_state`)
manifests/<shard:04d>/history/<first version:020d>-<last version:020d>.json
meta/<n:020d>.json
groups/<journal>/<n:020d>.json                  a journal of groups: ``embedded``, or a shard's copies (four digits)
groups/<journal>/_snapshots/<next n:020d>.json  its state after all entries below n
_staging/<job>/...          temporary objects of a job (a sweep's); the sweep removes those of a dead job
_staging/sink-<sink>/<batch:020d>/<name>  records that a sink (Spark's) appends later, and its marks
_copy.json                  the cluster that this bucket is a copy of, and whether the copy is complete (`copy`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

META_PREFIX = "meta/"
WAL_PREFIX = "wal/"
MANIFESTS_PREFIX = "manifests/"
TOPICS_PREFIX = "topics/"
GROUPS_PREFIX = "groups/"
EMBEDDED_GROUPS = "embedded"
"""The journal of a broker without etcd."""
STAGING_PREFIX = "_staging/"
SINK_JOB = "sink-"
COMMITTED = "committed"
"""The mark that fixes which staged records a batch of a sink appends."""
PUBLISHED = "published"
"""The mark that these records are in the log."""
COPY_KEY = "_copy.json"


@dataclass(frozen=True, order=True)
class TopicPartition:
    """A partition, by its topic's id. A topic that is created again under the same name has another id."""

    topic_id: str
    partition: int


_OWN = re.compile(
    r"wal/\d{4,}/.+|manifests/\d{4,}/.+|topics/[^/]+/[0-9a-f]{32}/.+|meta/\d{20}\.json"
    r"|groups/(?:embedded|\d{4,})/(?:_snapshots/)?\d{20}\.json|_staging/[^/]+/.+"
)


def is_own_key(key: str) -> bool:
    """Whether only Tidelog and its jobs write such keys. In a bucket that is shared without a prefix, another
    application may have a ``topics/`` of its own."""
    return _OWN.fullmatch(key) is not None


def wal_prefix(shard: int) -> str:
    return f"{WAL_PREFIX}{shard:04d}/"


def wal_suffix() -> str:
    return ".parquet"


def index_prefix(shard: int) -> str:
    """The index of a write-ahead log (`wal_index`)."""
    return f"{wal_prefix(shard)}_index/"


def groups_prefix(journal: str) -> str:
    """A journal of groups: `EMBEDDED_GROUPS`, or `group_copies` of a shard."""
    return f"{GROUPS_PREFIX}{journal}/"


def group_copies(shard: int) -> str:
    """The name of the journal to which the groups of `shard` are copied from etcd."""
    return f"{shard:04d}"


def group_snapshots_prefix(journal: str) -> str:
    return f"{groups_prefix(journal)}_snapshots/"


def topic_prefix(topic: str, topic_id: str) -> str:
    """All segments and manifests of a topic."""
    return f"{TOPICS_PREFIX}{topic}/{topic_id}/"


def staging_prefix(job_id: str) -> str:
    """The temporary objects of the job `job_id`. The sweep removes them a day after the last write among them."""
    return f"{STAGING_PREFIX}{job_id}/"


def sink_prefix(sink: str) -> str:
    """The staged objects of a sink."""
    return staging_prefix(f"{SINK_JOB}{sink}")


def sink_mark(key: str) -> tuple[int, str] | None:
    """The batch that the mark `key` of a sink is about, and which mark it is; None for another key."""
    found = re.fullmatch(rf"{STAGING_PREFIX}{SINK_JOB}[^/]+/(\d{{20}})/({COMMITTED}|{PUBLISHED})", key)
    return (int(found[1]), found[2]) if found else None


def history_key(prefix: str, first_version: int, last_version: int) -> str:
    return f"{prefix}{first_version:020d}-{last_version:020d}.json"


def history_versions(key: str, prefix: str) -> tuple[int, int] | None:
    """The first and last version in a history block's key; None for another key."""
    found = re.fullmatch(re.escape(prefix) + r"(\d{20})-(\d{20})\.json", key)
    return (int(found.group(1)), int(found.group(2))) if found else None


def numbered_key(prefix: str, number: int, suffix: str) -> str:
    """The key of entry `number` of the object log under `prefix`."""
    return f"{prefix}{number:020d}{suffix}"


def number_of(key: str, prefix: str, suffix: str) -> int | None:
    """The number in the key of an object log's entry; None for another key."""
    found = re.fullmatch(re.escape(prefix) + r"(\d{20})" + re.escape(suffix), key)
    return int(found.group(1)) if found else None


def shard_segment_key(topic: str, topic_id: str, shard: int, segment_id: str) -> str:
    """The key of a segment with records of `topic` in `shard`."""
    return f"{topic_prefix(topic, topic_id)}{shard:04d}-{segment_id}.parquet"


def shard_segment_prefix(topic: str, topic_id: str, shard: int) -> str:
    """All segments with records of `topic` in `shard`."""
    return f"{topic_prefix(topic, topic_id)}{shard:04d}-"


def shard_segment_id(key: str) -> str:
    """The `segment_id` in a segment's key."""
    return key.rpartition("-")[2].removesuffix(".parquet")


@dataclass(frozen=True, slots=True)
class ShardSegmentName:
    """The parts of a segment's key."""

    topic: str
    topic_id: str
    shard: int
    segment_id: str


_SHARD_SEGMENT = re.compile(r"topics/([^/]+)/([^/]+)/(\d{4,})-([0-9a-f]+)\.parquet")


def shard_segment_name(key: str) -> ShardSegmentName | None:
    """The parts of a segment's key; None for another key."""
    found = _SHARD_SEGMENT.fullmatch(key)
    return ShardSegmentName(found[1], found[2], int(found[3]), found[4]) if found else None


def manifests_prefix(shard: int) -> str:
    """The versions of a shard's manifest."""
    return f"{MANIFESTS_PREFIX}{shard:04d}/"


def shard_history_prefix(shard: int) -> str:
    """The history of collected versions of a shard's manifest (`shard_history`)."""
    return f"{manifests_prefix(shard)}history/"


def segment_topic_id(key: str) -> str | None:
    """The id of the topic whose segment `key` is; None for an object that is no segment."""
    parts = key.split("/")
    return parts[2] if len(parts) == 4 and key.startswith(TOPICS_PREFIX) else None


def lists_prefix(shard: int) -> str:
    """The lists of topics that versions name."""
    return f"{manifests_prefix(shard)}lists/"


def list_key(shard: int, topic_id: str, list_id: str) -> str:
    """The key of a list of a topic's segments in `shard`."""
    return f"{lists_prefix(shard)}{topic_id}-{list_id}.json"


def topic_id_of_list(key: str) -> str | None:
    """The topic's id in a list's key; None for another key."""
    found = re.fullmatch(r"manifests/\d{4,}/lists/(.+)-[0-9a-f]+\.json", key)
    return found[1] if found else None
