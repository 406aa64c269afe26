"""Ensures that exactly one cluster runs on a bucket, and creates the cluster on its first start.

A bucket and a key-value store name each other by the same `ClusterIdentity`: the bucket in its journal under
``cluster``, the store under the cluster's key ``identity``. A broker starts only if both agree:

    bucket       store        a broker of the cluster `name`
    ----------   ----------   ------------------------------------------------------------------------
    new          empty        founds the cluster
    founding     empty        continues founding, if this is the same store
    founding     the same     completes founding
    founded      the same     starts
    founded      empty        refuses: the store was wiped or is another one; `recover` writes it again
    any other    any other    refuses: two clusters, or one broker without etcd, would share the bucket

Founding writes (1) the journal with `founded` False, (2) the store, (3) the journal with `founded` True. If a start
stops between two steps, the next start continues. The journal is an object log: if several brokers found at the same
time, one of them decides the identity and the others read it. During founding the journal also names the store
(``cluster.founding``), so a second, empty store with the same cluster name is not accepted.

A broker without etcd checks the bucket only. It writes an identity in the same journal entry as its first topic
(`standalone_claim`), which costs no request. A bucket of an older version gets its identity with the next topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tidelog.coordinator.cluster.cluster_keys import (
    FORMAT_VERSION,
    ClusterIdentity,
    ClusterKeys,
    PeerSecret,
    decode_value,
    encode_value,
)
from tidelog.coordinator.journal import Change, Delete, Journal, Put
from tidelog.coordinator.kv.key_value import KeyValue, KeyValueStore, update_key
from tidelog.storage.errors import Corrupt, Denied, NewerFormat
from tidelog.storage.formats import FEATURE_LEVEL
from tidelog.storage.runtime import Entropy, Runtime

ETCD = "etcd"
EMBEDDED = "embedded"
STANDALONE_NAME = "alone"
"""The cluster name that a broker without etcd gives its bucket."""
_JOURNAL_KEY = "cluster"
_FOUNDING_KEY = "cluster.founding"
_RECOVER = "run `tidelog cluster recover`"


class WrongCluster(Denied):
    """The bucket, the key-value store and the settings do not belong together; an operator must choose."""


async def join_or_found(
    journal: Journal, kv: KeyValueStore, keys: ClusterKeys, *, shards: int, runtime: Runtime
) -> ClusterIdentity:
    """The identity of the cluster `keys.name` on this bucket; founds the cluster if the bucket is new. Raises the
    identity's number of shards to `shards` if it is lower. Raises `WrongCluster`, `Corrupt`, `Unavailable`."""
    stored = await store_identity(kv, keys)  # before the bucket's: an identity here is always in the bucket, too
    await journal.catch_up()
    owner = bucket_identity(journal) or await _begin_founding(journal, kv, keys, stored, shards, runtime)
    if owner.founded and stored is None:
        stored = await store_identity(kv, keys)  # another broker may have founded the cluster since the first read
    _refuse_mismatch(owner, stored, keys)
    if owner.founded and stored is None:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, but etcd knows nothing of it: etcd was wiped, or this is another "
            f"one. If it is the right one, {_RECOVER}"
        )
    await _check_same_founder(journal, owner, kv)
    grown = msgspec.structs.replace(owner, founded=True, shards=max(owner.shards, shards))
    if not owner.founded:
        await write_store_identity(kv, keys, grown)
    grown = await write_bucket_identity(journal, grown)
    await write_store_identity(kv, keys, grown)
    return grown


async def ensure_peer_secret(kv: KeyValueStore, keys: ClusterKeys, entropy: Entropy) -> PeerSecret:
    """The cluster's secret, created if it is absent; if several brokers create it at once, one wins and all return its
    secret. After etcd was wiped this creates a new one. Raises `Corrupt`, `Unavailable`."""
    secret = PeerSecret(FORMAT_VERSION, entropy.new_id() + entropy.new_id())

    def decide(item: KeyValue | None) -> bytes | None:
        nonlocal secret
        if item is None:
            return encode_value(secret)
        secret = decode_value(keys.peer_secret, item.value, PeerSecret)
        return None

    await update_key(kv, keys.peer_secret, decide)
    return secret


def check_standalone(journal: Journal) -> None:
    """Raises `WrongCluster` if the bucket of the open `journal` belongs to a cluster with etcd."""
    owner = bucket_identity(journal)
    if owner is not None and owner.coordinator != EMBEDDED:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, whose brokers meet in etcd: set etcd.endpoints and "
            f"cluster.name={owner.name}, or use another bucket"
        )


def standalone_claim(journal: Journal, *, shards: int, runtime: Runtime) -> Callable[[], Sequence[Change]]:
    """Makes the changes by which a broker without etcd claims the bucket along with its first topic; none if the bucket
    has an identity. The call raises `WrongCluster` if a cluster with etcd has claimed the bucket since the start."""
    new = ClusterIdentity(
        FORMAT_VERSION,
        runtime.entropy.new_id(),
        STANDALONE_NAME,
        EMBEDDED,
        shards,
        founded=True,
        feature_level=FEATURE_LEVEL,
    )

    def changes() -> Sequence[Change]:
        check_standalone(journal)
        return () if bucket_identity(journal) else _changes_to(journal, new)

    return changes


def bucket_identity(journal: Journal) -> ClusterIdentity | None:
    """The cluster that owns the bucket, according to the entries read so far. Raises `Corrupt`."""
    raw = journal.get(_JOURNAL_KEY)
    return None if raw is None else _decoded("meta/ cluster", bytes(raw))


async def store_identity(kv: KeyValueStore, keys: ClusterKeys) -> ClusterIdentity | None:
    """The identity in the store under the name `keys.name`. Raises `Corrupt`, `Unavailable`."""
    item = await kv.get(keys.identity)
    return None if item is None else _decoded(keys.identity, item.value)


async def write_bucket_identity(journal: Journal, identity: ClusterIdentity) -> ClusterIdentity:
    """Write `identity` to the journal and return what the journal holds then; shards and feature level are never
    lowered. Raises `WrongCluster` if another cluster owns the bucket."""

    def decide() -> Sequence[Change]:
        found = bucket_identity(journal)
        if found is not None and found.cluster_id != identity.cluster_id:
            raise WrongCluster(f"the bucket belongs to {named(found)}, not to {named(identity)}")
        return _changes_to(journal, _grown_with(found, identity))

    await journal.update(decide)
    return bucket_identity(journal) or identity


async def write_store_identity(kv: KeyValueStore, keys: ClusterKeys, identity: ClusterIdentity) -> None:
    """Write `identity` to the store; shards and feature level are never lowered. Raises `WrongCluster` if the store
    holds another cluster's."""

    def decide(item: KeyValue | None) -> bytes | None:
        stored = _decoded(keys.identity, item.value) if item else None
        if stored is not None and stored.cluster_id != identity.cluster_id:
            raise WrongCluster(_mismatch(identity, stored))
        wanted = _grown_with(stored, identity)
        return None if wanted == stored else encode_value(wanted)

    await update_key(kv, keys.identity, decide)


def named(identity: ClusterIdentity) -> str:
    """How messages name a cluster."""
    return f"cluster {identity.name!r} ({identity.cluster_id})"


def _grown_with(found: ClusterIdentity | None, identity: ClusterIdentity) -> ClusterIdentity:
    if found is None:
        return identity
    shards, level = max(identity.shards, found.shards), max(identity.feature_level, found.feature_level)
    return msgspec.structs.replace(identity, shards=shards, feature_level=level)


def _changes_to(journal: Journal, identity: ClusterIdentity) -> Sequence[Change]:
    """The changes that make the journal hold `identity`; none if it does. A founded cluster needs no founder."""
    changes: list[Change] = []
    if bucket_identity(journal) != identity:
        changes.append(Put(_JOURNAL_KEY, msgspec.Raw(encode_value(identity))))
    if identity.founded and journal.get(_FOUNDING_KEY) is not None:
        changes.append(Delete(_FOUNDING_KEY))
    return changes


async def _begin_founding(
    journal: Journal,
    kv: KeyValueStore,
    keys: ClusterKeys,
    stored: ClusterIdentity | None,
    shards: int,
    runtime: Runtime,
) -> ClusterIdentity:
    """Write the first step, or return the identity that another broker has written."""
    new = ClusterIdentity(
        FORMAT_VERSION, runtime.entropy.new_id(), keys.name, ETCD, shards, founded=False, feature_level=FEATURE_LEVEL
    )
    founder = msgspec.Raw(msgspec.json.encode(await kv.incarnation()))

    def decide() -> Sequence[Change]:
        if bucket_identity(journal) is not None:
            return ()
        _refuse_used_bucket(journal, stored, keys)
        return Put(_FOUNDING_KEY, founder), *_changes_to(journal, new)

    await journal.update(decide)
    return bucket_identity(journal) or new


async def _check_same_founder(journal: Journal, owner: ClusterIdentity, kv: KeyValueStore) -> None:
    raw = journal.get(_FOUNDING_KEY)
    if not owner.founded and raw is not None and msgspec.json.decode(raw) != await kv.incarnation():
        raise WrongCluster(
            f"{named(owner)} was being founded on this bucket with another etcd: use that one, or {_RECOVER} to "
            "found it with this one"
        )


def _refuse_used_bucket(journal: Journal, stored: ClusterIdentity | None, keys: ClusterKeys) -> None:
    """A bucket without an owner must be new, and so must the store."""
    if stored is not None:
        raise WrongCluster(
            f"etcd belongs to {named(stored)}, which has another bucket: name that bucket with `store`, or give this "
            "cluster another cluster.name"
        )
    if journal.next_number > 0:
        raise WrongCluster(
            f"the bucket was used by a broker without etcd: {_RECOVER} to bind it to this etcd as cluster {keys.name!r}"
        )


def _refuse_mismatch(owner: ClusterIdentity, stored: ClusterIdentity | None, keys: ClusterKeys) -> None:
    if stored is not None and stored.cluster_id != owner.cluster_id:
        raise WrongCluster(_mismatch(owner, stored))
    if owner.coordinator == EMBEDDED:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, a broker without etcd: stop it, and {_RECOVER} to bind the bucket "
            f"to this etcd as cluster {keys.name!r}"
        )
    if owner.name != keys.name:
        raise WrongCluster(
            f"the bucket belongs to {named(owner)}, and this broker is of cluster {keys.name!r}: set "
            f"cluster.name={owner.name}, or use another bucket"
        )


def _mismatch(owner: ClusterIdentity, stored: ClusterIdentity) -> str:
    return (
        f"the bucket belongs to {named(owner)}, and etcd to {named(stored)}: `store`, etcd.endpoints or cluster.name "
        "names another cluster"
    )


def _decoded(key: str, value: bytes) -> ClusterIdentity:
    identity = decode_value(key, value, ClusterIdentity)
    if identity.format_version != FORMAT_VERSION:
        raise Corrupt(key, f"has format version {identity.format_version}; this Tidelog reads {FORMAT_VERSION}")
    if identity.feature_level > FEATURE_LEVEL:
        raise NewerFormat(
            f"{named(identity)} is at feature level {identity.feature_level}, and this Tidelog knows up to "
            f"{FEATURE_LEVEL}: install the version that the other brokers run"
        )
    return identity
